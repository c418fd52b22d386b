"""A promised flow at work: a run of one worker, or of several lanes, that proves its promise window by window."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from headwater.clock import now_ns
from headwater.data.batch import CREATED
from headwater.data.column import Array
from headwater.data.jit import answering_at_once
from headwater.engine.lanes import LaneRun, LanesRun
from headwater.engine.lanes.inlet import Inlet
from headwater.engine.lanes.lane import Keeping
from headwater.engine.lanes.layout import laid_out
from headwater.engine.options import Options
from headwater.engine.run import EngineRun
from headwater.engine.workers import WorkerPool
from headwater.errors import RunError
from headwater.flow.contract import Contract
from headwater.flow.endpoints import Reader, Source, tells_time
from headwater.flow.flow import Flow
from headwater.metrics import Report
from headwater.operators.counters import Latencies
from headwater.rate import fork_context
from headwater.rate.client import Client
from headwater.rate.estimate import tick_of
from headwater.rate.gate import Gate
from headwater.rate.reservation import Reservation
from headwater.rate.watch import Watch
from headwater.rate.windows import Windows

log = logging.getLogger(__name__)


class PromisedRun(WorkerPool):
    """A run whose promise was admitted; its report has the windows kept and broken under `promise`."""

    def __init__(self, flow: Flow, options: Options, admitted: Reservation, client: Client | None) -> None:
        self.admitted = admitted
        self._guard = Watch(admitted, client)
        super().__init__(flow, options)
        _have_watched(self, self._guard.windows)

    def read_through(self, reader: Reader, source: Source) -> Reader:
        """Put the gate before a source."""
        return _gate(reader, source, self._guard)

    def processes(self) -> Sequence[int]:
        """Return the processes that do the work."""
        return (os.getpid(),)

    def make_threads(self) -> list[threading.Thread]:
        """Return the worker, and who watches over the promise."""
        return [*super().make_threads(), self._guard.thread(self)]

    def start(self) -> Self:
        """Start; windows begin now."""
        self._guard.windows.begin(now_ns())
        return super().start()

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end as every run does, and then let go what was reserved."""
        return self._guard.until_over(partial(super().wait, timeout_s))

    def _extra(self) -> dict[str, Any]:
        return {**super()._extra(), "promise": self.promise()}

    @property
    def windows(self) -> Windows:
        """The windows of the promise."""
        return self._guard.windows

    def promise(self) -> dict[str, Any]:
        """Return what was promised and reserved, and the windows so far."""
        return self._guard.promise()


class PromisedLanes(LanesRun):
    """A promised run in several lanes: they share what is reserved, and are judged as one."""

    shares = False  # one lane reads all, and counts what comes

    def __init__(self, flow: Flow, options: Options, admitted: Reservation, client: Client | None) -> None:
        self.admitted = admitted
        self._guard = Watch(admitted, client)
        super().__init__(laid_out(flow), admitted.lanes, options)

    def make_lane(self, lane: int, options: Options) -> LaneRun:
        """Make a lane of which the windows learn."""
        return _PromisedLane(self._guard, lane, self.part(lane), options, self.keeping(lane))

    def start(self) -> Self:
        """Start all lanes; windows begin now."""
        self._guard.windows.begin(now_ns())
        super().start()
        self.join_in(self._guard.thread(self))
        return self

    def lanes_died(self) -> None:
        """Have the windows know that nobody is at work."""
        self._guard.windows.died(now_ns())

    def lanes_are_back(self) -> None:
        """Have the windows know that what was left behind is caught up with."""
        self._guard.windows.back(now_ns())

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end as every run does, and then let go what was reserved.

        A lane that died without a checkpoint to go on from ends the run, and this process with it where somebody keeps it:
        all start again together.
        """
        try:
            return self._guard.until_over(partial(super().wait, timeout_s), self._starts_again)
        except RunError as error:
            if self._starts_again():
                log.warning("%s", error)
                os._exit(1)
            raise

    def _starts_again(self) -> bool:
        has_keeper = fork_context.keeper is not None and bool(fork_context.keeper.pid) and not self._guard.is_trial
        return bool(self._lost) and has_keeper

    def _extra(self) -> dict[str, Any]:
        return {**super()._extra(), "promise": self.promise()}

    @property
    def windows(self) -> Windows:
        """The windows of the promise."""
        return self._guard.windows

    def promise(self) -> dict[str, Any]:
        """Return what was promised and reserved, and the windows so far."""
        return self._guard.promise()


class _PromisedLane(LaneRun):
    """One of several lanes of a promise."""

    def __init__(self, watch: Watch, lane: int, part: Flow, options: Options, keeping: Keeping | None) -> None:
        self._guard = watch
        watch.windows.counts.be(lane)
        super().__init__(part, options, keeping)
        _have_watched(self, watch.windows)

    def read_through(self, reader: Reader, source: Source) -> Reader:
        """Put the gate before a source, but for what comes from another lane."""
        if isinstance(source, Inlet):
            return reader
        return _gate(reader, source, self._guard)


def _gate(reader: Reader, source: Source, watch: Watch) -> Gate:
    """Put the gate before a source; what tells event time comes over a bridge, from another part of the flow."""
    return Gate(reader, source.schema, watch.bucket, watch.windows, passes=tells_time(source))


def _have_watched(run: EngineRun, windows: Windows) -> None:
    """Have windows learn of what comes out of a run."""
    for task in run.tasks:
        if run.is_output(task):
            task.latencies = _Watched(windows)


class _Watched(Latencies):
    """Latencies of a sink that windows learn of too, of every record."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self._windows = windows

    def arrived(self, stamps: Array) -> None:
        """Take note of records that a sink has just taken."""
        self._windows.left(stamps[:, CREATED], now_ns())
        super().arrived(stamps)


def begin(flow: Flow, reservation: Reservation, line: Client | None, **options: Any) -> PromisedRun | PromisedLanes:
    """Start a flow in the lanes that cores are held for; `line` is to who holds them, None for a trial.

    `options` are those of the engine, but for what makes a lane.
    """
    run_class = PromisedRun if reservation.lanes == 1 else PromisedLanes
    with answering_at_once():
        return run_class(flow, Options(**{**options, **lane_options(reservation.contract)}), reservation, line).start()


def lane_options(contract: Contract) -> dict[str, Any]:
    """Return how a lane runs: one worker that takes all that waits, and sources that let records gather for a tick."""
    tick_s = tick_of(contract)
    return {
        "workers": 1,
        "take": "all",
        "linger": f"{tick_s * 1e3:.3f} ms",
        "chunk": max(256, math.ceil(2 * contract.rate_hz * tick_s)),
    }
