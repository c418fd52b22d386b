"""Figures 10a and 9b: throughput over input up to twice what threads can do, and latency at 70 % of that."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate.estimate import nearest
from headwater.rate.ledger import LANE
from headwater_bench.experiments.rates.lap import BOUND_S, Lap, together
from headwater_bench.experiments.rows import text_table

SYSTEMS = ("promised", "longest_queue", "threads", "dhalion", "serverless")
LOADS = (1.0, 1.5, 2.0)
PAPER = (
    "figure 10a: at twice Storm's saturation, Storm and EdgeWise near 0, Dhalion, Storm-Serverless and Storm-RTS at 1.0; "
    "figure 9b: Storm-RTS below 20 ms, slightly above Storm and EdgeWise, well below Dhalion"
)
_FIRST_HZ = 20_000.0
_ENOUGH = 0.97
_MOST_HZ = 400_000.0


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Find where threads saturate, and run every system at shares of that."""
    seconds = 2
    rows: list[dict[str, Any]] = []
    latency: dict[str, dict[str, float]] = {}
    for flow in ("pred",) if quick else ("etl", "pred"):
        top_hz = _saturation(flow, seconds, profiles, home)
        for system in SYSTEMS[:3] if quick else SYSTEMS:
            for load in LOADS[-1:] if quick else LOADS:
                rows.append(_at(flow, system, load, load * top_hz, seconds, profiles, home))
            at_70 = _at(flow, system, 0.7, 0.7 * top_hz, seconds, profiles, home)
            latency.setdefault(system, {})[flow] = at_70["p50_ms"]
    kept: dict[str, Any] = {}
    for system in dict.fromkeys(row["system"] for row in rows):
        mine = [row for row in rows if row["system"] == system]
        kept[system] = {
            str(load): round(statistics.geometric_mean(max(1e-3, r["rate_kept"]) for r in mine if r["load"] == load), 4)
            for load in dict.fromkeys(row["load"] for row in mine)
        }
    return {"rate_kept": kept, "latency_at_70_ms": latency, "paper": PAPER, "cases": rows}


def _saturation(flow: str, seconds: int, profiles: dict[str, str], home: Path) -> float:
    """Return the highest rate, of those that double, that threads keep up with."""
    rate_hz = _FIRST_HZ
    while rate_hz < _MOST_HZ and _at(flow, "threads", 1.0, 2 * rate_hz, seconds, profiles, home)["rate_kept"] > _ENOUGH:
        rate_hz *= 2
    return rate_hz


def _promisable_hz(profile: str, rate_hz: float) -> float:
    """Return what one lane can be promised of a rate; the rest is best effort."""
    demand = Profile.load(Path(profile)).demand
    assert demand is not None
    return nearest(demand, Contract(rate_hz, BOUND_S), 0.95 * LANE).rate_hz or rate_hz


def _at(
    flow: str, system: str, load: float, rate_hz: float, seconds: int, profiles: dict[str, str], home: Path
) -> dict[str, Any]:
    promised_hz = _promisable_hz(profiles[flow], rate_hz) if system == "promised" else rate_hz
    # without a trial: that is of the promised rate, and more comes
    lap = Lap(flow, system, [(0.0, rate_hz)], seconds, promise_hz=promised_hz, profile=profiles[flow], trial_s=0.0)
    found = together([lap], home)[0]
    row = {"flow": flow, "system": system, "load": load, "rate_hz": rate_hz, "promised_hz": promised_hz}
    return row | {key: found[key] for key in ("rate_kept", "kept", "p50_ms", "p99_ms", "used_cores")}


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    loads = list(next(iter(part["rate_kept"].values())))
    rows = [(name, *(kept[load] for load in loads)) for name, kept in part["rate_kept"].items()]
    return [
        *text_table(("throughput / input at", *loads), rows),
        *(f"median ms at 70 %: {name} {by_flow}" for name, by_flow in part["latency_at_70_ms"].items()),
        f"paper, {part['paper']}",
    ]
