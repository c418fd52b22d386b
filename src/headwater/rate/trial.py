"""A trial: what a promised flow uses and keeps up with, by running just what its lane will, for some seconds.

Sampled records come at the promised rate, through the gate and past the windows that a lane has, and are written nowhere.
"""

from __future__ import annotations

import time
from sys import maxsize

from headwater.data.batch import Batch, concat_batches
from headwater.engine.profiler import sample_sources
from headwater.errors import RateError, RunError
from headwater.flow.endpoints import Source, at_rate
from headwater.flow.flow import Flow
from headwater.flow.steps import Kind, Read
from headwater.io import Items, Replay
from headwater.io.open_loop_source import OpenLoopSource
from headwater.rate import process
from headwater.rate.chain import dry
from headwater.rate.estimate import Nearest, backlog
from headwater.rate.lane import begin
from headwater.rate.ledger import LANE
from headwater.rate.reservation import Reservation

TRIAL_S = 3.0
SPARE = 1.3
"""How much more is reserved than a trial has used, at least."""

_WARM_S = 0.5  #: the first part of a trial, in which kernels are loaded
_ENOUGH = 0.95  #: of the rate that a trial must have kept up with
_SAMPLES = 5_000


def trial(flow: Flow, reservation: Reservation, seconds: float = TRIAL_S) -> float:
    """Run a flow's sampled records at the promised rate in the lanes that cores are held for; return the cores it used.

    What piles up in queues has not been kept up with, even if it was read.
    """
    contract, demand = reservation.contract, reservation.demand
    running = begin(at_promised_rate(dry(flow), contract.rate_hz), reservation, None)
    time.sleep(_WARM_S)
    processes = running.processes()
    before, before_s, used_s = running.sample(), time.monotonic(), [process.used_s(each) for each in processes]
    running.done.wait(seconds)
    now_s = [process.used_s(each) for each in processes]
    spent_s, after = time.monotonic() - before_s, running.sample()
    used = [(now - was) / spent_s for now, was in zip(now_s, used_s, strict=True)]
    broke = running.error is not None
    running.abort()
    try:
        running.wait()
    except RunError:
        if broke:
            raise  # else it only was too slow to come back at once, which is what the trial is to show
    piled_up = backlog(demand, after) - backlog(demand, before)
    done_hz = max(0.0, after.records_in - before.records_in - piled_up) / spent_s
    share = done_hz / contract.rate_hz
    no, cores = f"flow {flow.name!r} cannot be promised {contract}: in a trial of", f"with {sum(used):.2f} cores"
    if share < _ENOUGH:
        raise RateError(f"{no} {spent_s:.1f} s it took in {share:.0%} of that rate, {cores}; {_tried(done_hz / SPARE)}")
    latency, bound_s = after.since(before).latency, contract.latency_s
    if bound_s is not None and latency.percentile(50) > bound_s * 1e9:
        half, most = (latency.percentile(percent) / 1e9 for percent in (50, 99))
        raise RateError(
            f"{no} {spent_s:.1f} s half of its records took longer than {half * 1e3:.3g} ms, {cores}; "
            f"{Nearest(None, 2 * most)}"
        )
    if reservation.lanes > 1 and max(used) > LANE:
        raise RateError(
            f"{no} {reservation.lanes} lanes one of them used {max(used):.2f} of a core, and may have {LANE:.2f}; "
            f"{_tried(contract.rate_hz * LANE / max(used) / SPARE)}"
        )
    return sum(used)


def at_promised_rate(flow: Flow, rate_hz: float) -> Flow:
    """Return the flow with sources that bring their records at this rate, all together and for ever."""
    samples = sample_sources(flow, _SAMPLES)
    kinds: dict[str, Kind] = {}
    for name, (batches, _) in samples.items():
        kind = flow.steps[name].kind
        assert isinstance(kind, Read)
        kinds[name] = Read(_for_ever(kind.source, batches, rate_hz / len(samples)))
    return flow.replaced(kinds)


def _for_ever(source: Source, batches: list[Batch], rate_hz: float) -> Source:
    """Return a source's records at a rate: its own while it has more of them, else those found, over and over.

    One that ends would be over before a trial has seen anything of it, the sooner the higher the rate.
    """
    paced = at_rate(source, rate_hz)
    if paced is None:
        return Replay(concat_batches(batches), rate_hz)
    if isinstance(paced, OpenLoopSource) and min(paced.open_loop.total, paced.most or 0) < maxsize:
        return Replay(Items(concat_batches(batches).rows(), source.schema), rate_hz, time=paced.open_loop.time)
    return paced


def _tried(rate_hz: float) -> str:
    """Say what a trial has shown to fit; one in which nothing was done shows nothing, also not that no rate would."""
    if rate_hz:
        return str(Nearest(rate_hz, None))
    return "no record came through in that time, so it cannot say which rate would fit; ask for a lower one"
