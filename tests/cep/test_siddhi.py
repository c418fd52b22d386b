"""What Siddhi 5.1.30 itself answered: `siddhi_cases.jsonl` holds queries, the records sent and the rows that came out.

A record is its stream, its time in milliseconds, its `id` and its `x`. `docs/queries.md` lists where we differ on purpose.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chains import batch_of, rows_of, step_of

from headwater.cep.match import MatchPlan
from headwater.data.batch import END

CASES = [json.loads(line) for line in Path(__file__).with_name("siddhi_cases.jsonl").read_text().splitlines()]


def played(plan: MatchPlan, ports: list[str], send: list[Any]) -> list[list[Any]]:
    """Send records one by one, time passing between them, and return the rows that come out."""
    operator, found = plan(), []
    for stream, ms, number, x in send:
        if stream in ports:
            record = {"id": number, "key": "k", "x": x, "y": 0.0, "t": ms * 1000}
            found += rows_of(operator.process(batch_of([record]), ports.index(stream)))
        found += rows_of(operator.advance(ms * 1000 + 1))
    return [list(row.values()) for row in found + rows_of(operator.advance(END))]


@pytest.mark.parametrize("query", sorted({case["query"] for case in CASES}))
def test_a_chain_finds_what_siddhi_finds(query: str) -> None:
    step, ports = step_of(query)
    plan = step.kind.make
    for case in (case for case in CASES if case["query"] == query):
        assert played(plan, ports, case["send"]) == case["out"]
        assert played(replace(plan, interpreted=True), ports, case["send"]) == case["out"]
