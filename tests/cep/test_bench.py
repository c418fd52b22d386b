"""The 21 queries of the paper run from their text and have the selectivity that its table states."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater_bench.experiments import cep, cep_keys, cep_queries

STATED = {
    "Fil 1.0": 1,
    "Fil 0.5": 0.5,
    "Fil 0.0": 0,
    "Seq3 1.0": 1,
    "Seq3 0.5": 0.5,
    "Seq3 0.0": 0,
    "Seq5 1.0": 1,
    "Seq5 0.5": 0.5,
    "Seq5 0.0": 0,
    "Pat3 1.0": 1,
    "Pat3 0.5": 0.5,
    "Pat3 0.0": 0,
    "Pat5 1.0": 1,
    "Pat5 0.5": 0.5,
    "Pat5 0.0": 0,
    "AggB 60": 1 / 60,
    "AggB 600": 1 / 600,
    "AggB 6000": 1 / 6000,
    "AggS 60": 1,
    "AggS 600": 1,
    "AggS 6000": 1,
}


#: records for shapes with which the interpreter tries every pair of them
FEWER = {"and": 600, "or": 600, "absence and": 600}


@pytest.mark.thorough
def test_every_query_has_the_selectivity_that_the_table_states(tmp_path: Path) -> None:
    answer = cep.run(output=tmp_path, records=24_000, only=list(STATED))
    found = {name: row["selectivity"] for name, row in answer["queries"].items()}
    assert found == pytest.approx(STATED, abs=0.02)
    for row in answer["queries"].values():
        assert {"rate", "paper_azure", "over_paper", "selectivity", "last_over_first"} <= row.keys()
    with (tmp_path / "cep.csv").open() as file:
        assert [row["query"] for row in csv.DictReader(file)] == list(STATED)
    assert "Pat5 0.0" in cep.table(answer)


def test_a_wrong_number_of_results_stops_the_experiment() -> None:
    config = next(c for c in cep_queries.configs() if c.name == "Seq3 1.0")
    wrong = cep_queries.Config(config.name, config.query, cep_queries.different, config.results, 1, 1)
    with pytest.raises(AssertionError, match="20000 records gave 0 results, expected 19998 to 19998"):
        cep._measured(wrong, 20_000)


def test_bounds_keep_partial_matches_few() -> None:
    found = cep._bounds(150_000)
    assert found["cap 100,000"]["partial_matches"] == 100_000
    assert found["cap 100,000"]["evicted"] == 50_000
    assert found["within 50 sec"]["partial_matches"] == 50_001
    assert found["no bound"]["partial_matches"] == 150_000
    assert found["no bound"]["mb"] > found["within 50 sec"]["mb"]


@pytest.mark.thorough
def test_queries_over_100_000_keys_find_each_key_within_the_stated_memory() -> None:
    found = cep_keys.over_keys(100_000)
    assert found["partition"]["results"] == 100_000
    assert found["absence"]["results"] == 3 * 100_000
    assert found["join"]["results"] == 8 * 100_000  # the first record of a is just out of its window for the last of b
    for row in found.values():
        assert 0 < row["state_mb"] <= row["bound_mb"] == 350
        assert row["grown_mb"] <= row["bound_mb"]


def test_keys_that_come_and_go_are_forgotten() -> None:
    found = cep_keys.endless_keys(1_000_000)
    assert found["results"] == 1_000_000
    assert found["forgotten_keys"] > 700_000
    assert found["state_mb"] == found["state_mb_first_half"] < 100


@pytest.mark.parametrize("name", cep._SHAPES)
def test_other_shapes_find_what_the_interpreter_finds(name: str) -> None:
    query, n = f"from {cep._SHAPES[name]}", FEWER.get(name, 1_200)
    found = cep._shape(query, n)
    fast: Any = cep_queries.operator_of(query, "a", cep._SHAPED)
    slow = replace(fast._plan, interpreted=True)()
    results = [slow.process(batch, 0) for at in range(0, n, n // 10) for batch in cep._shaped(at, at + n // 10)]
    assert found["results"] == sum(batch.length for batch in results if batch is not None) > 0
    assert found["partial_matches"] == slow.partial_matches
