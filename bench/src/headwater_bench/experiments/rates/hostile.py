"""Neighbours that mean harm, in processes of their own and as lanes: the promise must hold beside each."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from headwater.cores import whole_cores
from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate.estimate import nearest
from headwater.rate.grade import grade_here
from headwater.rate.ledger import LANE, Ledger
from headwater_bench.experiments.rates.lap import Lap, started
from headwater_bench.experiments.rates.scan import NEIGHBOURS, SHORT, running
from headwater_bench.experiments.rows import text_table

RATE_HZ = 20_000.0
_MOST_HZ = 1e7
_GREEDY = {"etl": 5_000.0, "pred": 5_000.0}
_TIMES = 10  #: as much as they were promised, that greedy lanes are offered
_FULL = 0.8  #: of the cores that may be promised, that several flows have beside short processes
_TIGHT_S = 0.02  #: within which these are promised
_SHARE = 0.95  #: of what a flow may have there, that it asks for: its trial may find it a little dearer


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
    answer["short processes"] = _tight(2 if quick else 30, profiles, home)
    answer["kept"] = min(each["kept"] for each in answer.values())
    return answer


def _tight(seconds: int, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Fill the machine with promises of a short latency, beside processes that begin and end all the time.

    No weight holds against these to within milliseconds, as it does against programs that run on.
    """
    room = _FULL * Ledger(grade_here().cores).capacity / len(profiles)
    laps = []
    for name, path in profiles.items():
        demand = Profile.load(Path(path)).demand
        assert demand is not None
        hz = nearest(demand, Contract(_MOST_HZ, _TIGHT_S), _SHARE * min(room, LANE)).rate_hz
        if hz is not None:
            laps.append(Lap(name, "promised", [(0.0, hz)], seconds, bound_s=_TIGHT_S, profile=path))
    with started(laps, home) as processes:
        admitted = [each for each in processes if each.refused() is None]
        if not admitted:
            raise AssertionError("beside short processes: none of the flows is admitted at what should fit")
        with running(SHORT, 2 * whole_cores()):
            for each in admitted:
                each.go()
            results = [each.result() for each in admitted]
    windows = sum(each["windows"] for each in results)
    return {
        "kept": round(sum(each["kept_windows"] for each in results) / windows, 4),
        "windows": windows,
        "rate_kept": min(each["rate_kept"] for each in results),
        "p99_ms": max(each["p99_ms"] for each in results),
        "worst_ms": max(max(each["worst_ms"]) for each in results),
        "used_cores": round(sum(each["used_cores"] for each in results), 4),
        "reserved_cores": round(sum(each["promise"]["reserved_cores"] for each in results), 4),
    }


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
            result = processes[0].result()
    return {key: result[key] for key in ("kept", "windows", "rate_kept", "p99_ms", "used_cores")}


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    by_name = {name: row for name, row in part.items() if isinstance(row, dict)}
    rows = [(name, row["kept"], row["rate_kept"], row["p99_ms"]) for name, row in by_name.items()]
    return text_table(("hostile neighbour", "kept", "rate kept", "p99 ms"), rows)
