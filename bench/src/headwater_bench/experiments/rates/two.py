"""A promised flow in one lane and in two, for real: the highest rate that is promised and kept, and the most that is done.

How many lanes a flow gets is for admission to say: in one it is promised the highest rate that one may have, in two the
highest that two may have, or as much less as is kept. Then each is offered more than it can do: what is above its promise is
best effort, and on a machine with nothing else to do that is all there is.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from headwater import rate
from headwater.errors import RunError
from headwater.flow import Flow
from headwater.flow.contract import Contract
from headwater.flow.profile import Demand, Profile
from headwater.rate import process
from headwater.rate.estimate import backlog, nearest
from headwater.rate.ledger import LANE
from headwater_bench.experiments.rates.lap import BOUND_S
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated
from headwater_bench.riot.stats import stats

GOAL = 1.7
_OFFERED_HZ = 5e6  #: more than any of the flows can do in two lanes
_MOST_HZ = 1e7
_LESS = (1.0, 0.95, 0.9, 0.85, 0.8)  #: of the rate that two lanes may have by the estimate
_KEPT = 0.99
_WARM_S = 1.0
_LONGEST_S = 300.0  #: where no kernel was ever compiled, and others keep the machine busy
_FLOWS: dict[str, Callable[..., Flow]] = {"etl": etl, "stats": stats, "pred": pred}


class Order(msgspec.Struct, frozen=True):
    """What a process is to run."""

    flow: str
    promise_hz: float
    offered_hz: float
    seconds: float
    profile: str


def measure(
    flows: Sequence[str], seconds: float, times: int, profiles: dict[str, str], home: Path
) -> dict[str, dict[str, Any]]:
    """Run each flow in one lane and in two, by turns; medians. What fails is told beside the rest, as `failed`."""
    answer: dict[str, dict[str, Any]] = {}
    for name in flows:
        demand = Profile.load(Path(profiles[name])).demand
        assert demand is not None
        rates = {lanes: promisable_hz(demand, lanes) for lanes in (1, 2)}
        full = {lanes: Order(name, hz, _OFFERED_HZ, seconds, profiles[name]) for lanes, hz in rates.items()}
        try:
            promised = _promised(name, rates, seconds, profiles[name], home)
        except AssertionError as error:  # what is done at most is known all the same
            promised = {"failed": str(error)}
        try:
            laps = [(lanes, _lap(full[lanes], lanes, home)) for _ in range(times) for lanes in (1, 2)]
        except AssertionError as error:
            answer[name] = {**promised, "failed": "; ".join(filter(None, (promised.get("failed"), str(error))))}
            continue
        one_hz, two_hz = (statistics.median(lap["done_hz"] for of, lap in laps if of == lanes) for lanes in (1, 2))
        answer[name] = {
            "two_over_one": round(two_hz / one_hz, 3),
            "one_hz": round(one_hz),
            "two_hz": round(two_hz),
            "cores": [round(statistics.median(lap["cores"] for of, lap in laps if of == lanes), 3) for lanes in (1, 2)],
            "times": times,
            **promised,
        }
    return answer


def _promised(name: str, rates: dict[int, float], seconds: float, profile: str, home: Path) -> dict[str, Any]:
    """Return the rates that one lane, and two, were promised and kept."""
    kept_hz: dict[int, float] = {}
    for lanes, most_hz in rates.items():
        for less in _LESS:
            lap = _lap(Order(name, less * most_hz, less * most_hz, seconds, profile), lanes, home)
            if lap["kept"] >= _KEPT * lap["windows"]:
                kept_hz[lanes] = less * most_hz
                break
        else:
            raise AssertionError(f"{name} in {lanes} lanes: {less * most_hz:,.0f}/s is promised, and not kept: {lap}")
    return {
        "promised_over_one": round(kept_hz[2] / kept_hz[1], 3),
        "one_promised_hz": round(kept_hz[1]),
        "two_promised_hz": round(kept_hz[2]),
    }


def _lap(order: Order, lanes: int, home: Path) -> dict[str, Any]:
    """Have a process of its own run it: lanes are forked where no other threads are."""
    try:
        child = subprocess.run(
            [sys.executable, "-m", __name__, msgspec.json.encode(order).decode()],
            env={**os.environ, "HEADWATER_RUNTIME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            timeout=_LONGEST_S + order.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{order.flow} in {lanes} lanes: nothing within {late.timeout:g} s") from None
    if child.returncode:
        raise AssertionError(f"{order.flow} in {lanes} lanes: {child.stderr.decode()[-1000:]}")
    saw: dict[str, Any] = msgspec.json.decode(child.stdout)
    if saw["lanes"] != lanes:
        raise AssertionError(f"{order.flow}: {lanes} lanes were wanted, and {saw['lanes']} admitted")
    return saw


def promisable_hz(demand: Demand, lanes: int) -> float:
    """Return the highest rate that so many lanes may be promised."""
    rate_hz = nearest(demand, Contract(_MOST_HZ, BOUND_S), 0.999 * LANE * lanes, lanes).rate_hz
    assert rate_hz is not None
    return rate_hz


def offered(name: str, rate_hz: float) -> Flow:
    """Return a flow to which so many messages come."""
    return _FLOWS[name](generated("CITY", rate_hz), instances={"publish": 1})


def main() -> None:
    """Run what the first argument describes, and say how fast that was."""
    order = msgspec.json.decode(sys.argv[1].encode(), type=Order)
    profile = Profile.load(Path(order.profile))
    demand = profile.demand
    assert demand is not None
    flow, contract = offered(order.flow, order.offered_hz), Contract(order.promise_hz, BOUND_S)
    running = rate.start(flow, contract, profile=profile, best_effort=True, trial_s=0.0)
    time.sleep(_WARM_S)
    before, before_s = running.promise(), _reading(running, demand)
    time.sleep(order.seconds)
    after, after_s = running.promise(), _reading(running, demand)
    span_s, done, used_s = (now - was for now, was in zip(after_s, before_s, strict=True))
    saw = {
        "lanes": running.admitted.lanes,
        "done_hz": done / span_s,
        "cores": used_s / span_s,
        "windows": after["windows"] - before["windows"],
        "kept": after["kept"] - before["kept"],
    }
    print(msgspec.json.encode(saw).decode(), flush=True)
    running.abort()
    with suppress(RunError):
        running.wait(10)


def _reading(running: rate.PromisedRun | rate.PromisedLanes, demand: Demand) -> tuple[float, float, float]:
    """Return the moment, the records that were read and have left, and the processor time of all lanes."""
    now, now_s = running.sample(), time.monotonic()
    return now_s, now.records_in - backlog(demand, now), sum(process.used_s(pid) for pid in running.processes())


if __name__ == "__main__":
    main()
