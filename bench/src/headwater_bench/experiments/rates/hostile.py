"""Neighbours that mean harm, in processes of their own and as lanes: the promise must hold beside each."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from headwater.cores import whole_cores
from headwater_bench.experiments.rates.lap import Lap, started
from headwater_bench.experiments.rates.scan import NEIGHBOURS, running
from headwater_bench.experiments.rows import text_table

RATE_HZ = 20_000.0
_GREEDY = {"etl": 5_000.0, "pred": 5_000.0}
_TIMES = 10  #: as much as they were promised, that greedy lanes are offered


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Run promised ETL beside each neighbour in turn."""
    seconds = 2 if quick else 8
    cores = whole_cores()
    answer = {}
    for name in NEIGHBOURS:
        beside = running(NEIGHBOURS[name], 1 if name == "forks" else 4 * cores)
        answer[name] = _lap(seconds, profiles, home, beside, [])
    greedy = [
        Lap(name, "promised", [(0.0, _TIMES * hz)], seconds, promise_hz=hz, profile=profiles[name], trial_s=0.0)
        for name, hz in _GREEDY.items()
    ]
    answer["greedy lanes"] = _lap(seconds, profiles, home, nullcontext(), greedy)
    answer["kept"] = min(each["kept"] for each in answer.values())
    return answer


def _lap(
    seconds: int, profiles: dict[str, str], home: Path, beside: AbstractContextManager[None], others: list[Lap]
) -> dict[str, Any]:
    own = Lap("etl", "promised", [(0.0, RATE_HZ)], seconds, profile=profiles["etl"])
    with started([own, *others], home) as processes:
        for each in processes:
            each.ready()
        with beside:
            for each in processes:
                each.go()
            found = processes[0].result()
    return {key: found[key] for key in ("kept", "windows", "rate_kept", "p99_ms", "used_cores")}


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    found = {name: row for name, row in part.items() if isinstance(row, dict)}
    rows = [(name, row["kept"], row["rate_kept"], row["p99_ms"]) for name, row in found.items()]
    return text_table(("hostile neighbour", "kept", "rate kept", "p99 ms"), rows)
