"""Figures 10a and 9b: throughput over input up to twice what threads can do, and latency at 70 % of that.

Throughput is what comes out in a second, whenever it was due, as in the paper: what a system that adapts has left behind
until it did is not held against it, and it is looked at only after it had the time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate.estimate import nearest
from headwater.rate.ledger import LANE
from headwater_bench.experiments.rates.isolation import ADAPTS_S, SETTINGS
from headwater_bench.experiments.rates.lap import BOUND_S, Lap, together
from headwater_bench.experiments.rates.profiles import of_full_lane
from headwater_bench.experiments.rows import text_table

SYSTEMS = ("promised", "longest_queue", "threads", "dhalion", "serverless")
LOADS = (1.0, 1.5, 2.0)
CALM = 0.7
"""The load at which latencies are compared: for a promise, or as much of it as one lane may be promised."""

Settings = dict[str, float | str]
PAPER = (
    "figure 10a: at twice Storm's saturation, Storm and EdgeWise near 0, Dhalion, Storm-Serverless and Storm-RTS at 1.0; "
    "figure 9b: Storm-RTS below 20 ms, slightly above Storm and EdgeWise, well below Dhalion"
)
_FIRST_HZ = 20_000.0
_ENOUGH = 0.97
_MOST_HZ = 400_000.0
_HALVINGS = 3  #: of what lies between a rate that threads keep up with and twice that: to an eighth
_SECONDS = 2


def measure(quick: bool, profiles: dict[str, str], home: Path) -> dict[str, Any]:
    """Find where threads saturate, and run every system at shares of that, with the settings that suit it."""
    rows: list[dict[str, Any]] = []
    tops: dict[str, float] = {}
    for flow in ("pred",) if quick else ("etl", "pred"):
        at = partial(_at, flow=flow, profile=of_full_lane(flow, profiles[flow]), home=home)
        top_hz = tops[flow] = _saturation(partial(_keeps_up, at))
        for system in SYSTEMS[:3] if quick else SYSTEMS:
            rows += _at_loads(partial(at, system, top_hz), SETTINGS.get(system, [{}]), quick)
    systems = list(dict.fromkeys(row["system"] for row in rows))
    latency = [row for row in rows if row["load"] == CALM]
    return {
        "throughput_over_input": {system: _by_load(rows, system) for system in systems},
        "latency_at_70_ms": {s: {r["flow"]: r["p50_ms"] for r in latency if r["system"] == s} for s in systems},
        "threads_saturate_at_hz": tops,
        "paper": PAPER,
        "cases": rows,
    }


def _at_loads(
    at: Callable[[float, Settings], dict[str, Any]], tried: Sequence[Settings], quick: bool
) -> list[dict[str, Any]]:
    """Return what a system does at every load, with the settings of which most comes out at the highest."""
    most = [at(LOADS[-1], each) for each in tried]
    best = max(range(len(tried)), key=lambda number: most[number]["throughput_over_input"])
    return [most[best], *(at(load, tried[best]) for load in ((CALM,) if quick else (CALM, *LOADS[:-1])))]


def _by_load(rows: list[dict[str, Any]], system: str) -> dict[str, float]:
    """Return the mean over flows, which is geometric as the paper's is."""
    means: dict[str, float] = {}
    for load in sorted({row["load"] for row in rows} - {CALM}):
        mine = (r["throughput_over_input"] for r in rows if (r["system"], r["load"]) == (system, load))
        means[str(load)] = round(statistics.geometric_mean(max(1e-3, each) for each in mine), 4)
    return means


def _saturation(keeps_up: Callable[[float], bool]) -> float:
    """Return the highest rate, to an eighth, that threads keep up with."""
    rate_hz = _FIRST_HZ
    while rate_hz < _MOST_HZ and keeps_up(2 * rate_hz):
        rate_hz *= 2
    step_hz = rate_hz / 2
    for _ in range(_HALVINGS if rate_hz < _MOST_HZ else 0):
        if keeps_up(rate_hz + step_hz):
            rate_hz += step_hz
        step_hz /= 2
    return rate_hz


def _keeps_up(at: Callable[..., dict[str, Any]], rate_hz: float) -> bool:
    return bool(at("threads", rate_hz, 1.0, {})["throughput_over_input"] > _ENOUGH)


def _promisable_hz(profile: str, rate_hz: float) -> float:
    """Return what one lane can be promised of a rate; the rest is best effort."""
    demand = Profile.load(Path(profile)).demand
    assert demand is not None
    return nearest(demand, Contract(rate_hz, BOUND_S), 0.95 * LANE).rate_hz or rate_hz


def _at(
    system: str, top_hz: float, load: float, settings: Settings, *, flow: str, profile: str, home: Path
) -> dict[str, Any]:
    rate_hz = load * top_hz
    promised_hz = _promisable_hz(profile, rate_hz) if system == "promised" else rate_hz
    if load == CALM:
        rate_hz = min(rate_hz, promised_hz)  # what is promised, of the capacity that one lane has: the latency of that
    lap = Lap(
        flow,
        system,
        [(0.0, rate_hz)],
        _SECONDS,
        warm_s=ADAPTS_S if settings else 1.0,
        promise_hz=promised_hz,
        profile=profile,
        trial_s=0.0,  # that is of the promised rate, and more comes
        settings=settings,
    )
    result = together([lap], home)[0]
    row = {"flow": flow, "system": system, "load": load, "rate_hz": rate_hz, "promised_hz": promised_hz, **settings}
    row["throughput_over_input"] = round(min(1.0, sum(result["arrived"]) / sum(result["due"])), 4)
    return row | {key: result[key] for key in ("rate_kept", "kept", "p50_ms", "p99_ms", "used_cores")}


def lines(part: dict[str, Any]) -> list[str]:
    """Return the answer for people."""
    throughput = part["throughput_over_input"]
    loads = list(next(iter(throughput.values())))
    rows = [(name, *(by_load[load] for load in loads)) for name, by_load in throughput.items()]
    return [
        *text_table(("throughput / input at", *loads), rows),
        *(f"median ms at 70 %: {name} {by_flow}" for name, by_flow in part["latency_at_70_ms"].items()),
        f"paper, {part['paper']}",
    ]
