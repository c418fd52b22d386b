"""A trial: what a promised flow uses and keeps up with, by running just what its lane will, for some seconds.

Sampled records come at the promised rate, through the gate and past the windows that a lane has, and are written nowhere.
Several lanes get a tenth more than that, and are judged by their windows: what they cost each other, by handing records on
and by sharing caches and memory, grows with the rate, and shows as records that are late before any lane is full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from sys import maxsize

from headwater.clock import now_ns
from headwater.data.batch import Batch, concat_batches
from headwater.engine.profiler import sample_sources
from headwater.errors import RateError, RunError
from headwater.flow.endpoints import Source, at_rate
from headwater.flow.flow import Flow
from headwater.flow.profile import Demand
from headwater.flow.steps import Kind, Read
from headwater.histogram import Histogram
from headwater.io import Items, Replay
from headwater.io.open_loop_source import OpenLoopSource
from headwater.rate import process
from headwater.rate.chain import dry
from headwater.rate.client import Client
from headwater.rate.estimate import Nearest, backlog
from headwater.rate.lane import PromisedLanes, PromisedRun, begin
from headwater.rate.ledger import LANE
from headwater.rate.messages import Tell
from headwater.rate.refused import NotPromisedError
from headwater.rate.reservation import Reservation
from headwater.rate.windows import WITHOUT_PROCESSOR, Window

TRIAL_S = 3.0
SPARE = 1.3
"""How much more is reserved than a trial has used, at least."""

HEADROOM = 1.1
"""How much more comes to several lanes than is promised: machines are now faster and now slower, and so is a trial's."""

_WARM_S = 0.5  #: the first part of a trial, in which kernels are loaded
_SETTLE_S = 1.0  #: the same of several lanes, each of which loads them
_WHOLE_S = 1.2  #: longer than said, so that as many whole windows are in it, and read
_ENOUGH = 0.95  #: of the rate that a trial must have kept up with
_SAMPLES = 5_000


def trial(flow: Flow, reservation: Reservation, seconds: float = TRIAL_S, line: Client | None = None) -> float:
    """Run a flow's sampled records at the promised rate in the lanes that cores are held for; return the cores it used.

    What piles up in queues has not been kept up with, even if it was read. NotPromisedError says what has not fit. Several
    lanes have the real time that they will have, where who holds the cores is told by `line` that they are at work.
    """
    several = reservation.lanes > 1
    more = HEADROOM if several else 1.0
    tried = replace(reservation.contract, rate_hz=more * reservation.contract.rate_hz)
    running = begin(at_promised_rate(dry(flow), tried.rate_hz), replace(reservation, contract=tried), None)
    at_work = partial(_tell, line, reservation.id) if several and line is not None else None
    _wait(running, _SETTLE_S if several else _WARM_S, at_work)
    lap_s = seconds + (_WHOLE_S if several else 0.0)
    lap = _lap(running, reservation.demand, lap_s, at_work)
    if several and lap.broken and lap.done_hz >= _ENOUGH * tried.rate_hz:
        lap = _lap(running, reservation.demand, lap_s, at_work)  # once may be chance, or a kernel that came late
    broke = running.error is not None
    running.abort()
    try:
        running.wait()
    except RunError:
        if broke:
            raise  # else it only was too slow to come back at once, which is what the trial is to show
    _judge(flow, reservation, lap, more)
    return sum(lap.used) / more


@dataclass(frozen=True, slots=True)
class Lap:
    """What was seen of a flow in some seconds of a trial."""

    seconds: float
    done_hz: float  #: records that left
    used: Sequence[float]  #: cores, by lane
    latency: Histogram
    windows: Sequence[Window] = ()  #: those that began and ended in it

    @property
    def broken(self) -> list[Window]:
        """The windows that were not kept."""
        return [window for window in self.windows if not window.kept]


def _wait(running: PromisedRun | PromisedLanes, seconds: float, at_work: Callable[[], None] | None) -> None:
    """Wait for so long, or to the end of a run, and say each second that it is at work."""
    pieces = max(1, round(seconds))
    for _ in range(pieces):
        if at_work is not None:
            at_work()
        running.done.wait(seconds / pieces)


def _tell(line: Client, name: str) -> None:
    with suppress(RateError):  # whoever takes its place is asked what came of it
        line.say(Tell(name, 0.0, 0, 0, above=False))


def _lap(
    running: PromisedRun | PromisedLanes, demand: Demand, seconds: float, at_work: Callable[[], None] | None
) -> Lap:
    """Watch a run for so many seconds, or to its end."""
    processes = running.processes()
    before, before_s, used_s = running.sample(), time.monotonic(), [process.used_s(each) for each in processes]
    first = running.windows.second(now_ns()) + 1
    _wait(running, seconds, at_work)
    now_s = [process.used_s(each) for each in processes]
    spent_s, after = time.monotonic() - before_s, running.sample()
    piled_up = backlog(demand, after) - backlog(demand, before)
    return Lap(
        spent_s,
        max(0.0, after.records_in - before.records_in - piled_up) / spent_s,
        [(now - was) / spent_s for now, was in zip(now_s, used_s, strict=True)],
        after.since(before).latency,
        [window for window in running.windows.judged() if window.second >= first],
    )


def _judge(flow: Flow, reservation: Reservation, lap: Lap, more: float) -> None:
    """Raise NotPromisedError where a trial has shown that a promise would not be kept; `more` times its rate came."""
    contract, used = reservation.contract, lap.used
    # what lanes have used for what they did says how much they may do, also where they could not do more
    may_have = min(1.0, LANE * reservation.lanes / max(sum(used), 1e-9)) if reservation.lanes > 1 else 1.0
    no = f"flow {flow.name!r} cannot be promised {contract}: in a trial of"
    cores, rate = f"with {sum(used):.2f} cores", "that rate" if more == 1 else "that rate and a tenth more"
    if lap.done_hz < _ENOUGH * more * contract.rate_hz:
        share = lap.done_hz / contract.rate_hz / more
        raise _tried(
            f"{no} {lap.seconds:.1f} s it took in {share:.0%} of {rate}, {cores}", may_have * lap.done_hz / SPARE
        )
    bound_s = contract.latency_s
    if bound_s is not None and lap.latency.percentile(50) > bound_s * 1e9:
        half, most = (lap.latency.percentile(percent) / 1e9 for percent in (50, 99))
        said = f"{no} {lap.seconds:.1f} s half of its records took longer than {half * 1e3:.3g} ms, {cores}"
        raise NotPromisedError(said, Nearest(None, 2 * most))
    if reservation.lanes == 1:
        return
    if max(used) > LANE * more:
        raise _tried(
            f"{no} {reservation.lanes} lanes one of them used {max(used) / more:.2f} of a core, and may have {LANE:.2f}",
            contract.rate_hz * more * LANE / max(used) / SPARE,
        )
    # what others have taken where nothing protects a lane is told by the grade, and is not for the flow to answer for
    exposed = reservation.grade not in ("reserved", "session")
    broken = [window for window in lap.broken if not (exposed and window.cause.startswith(WITHOUT_PROCESSOR))]
    if broken:
        raise _tried(
            f"{no} {reservation.lanes} lanes {len(broken)} of {len(lap.windows)} windows broke at {rate} "
            f"({broken[0].cause}), {cores}",
            may_have * contract.rate_hz / SPARE,
        )


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


def _tried(said: str, rate_hz: float) -> NotPromisedError:
    """Say what a trial has shown to fit; one in which nothing was done shows nothing, also not that no rate would."""
    if rate_hz:
        return NotPromisedError(said, Nearest(rate_hz, None))
    unknown = "no record came through in that time, so it cannot say which rate would fit; ask for a lower one"
    return NotPromisedError(f"{said}; {unknown}")
