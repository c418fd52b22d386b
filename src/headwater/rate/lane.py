"""A promised flow at work: a run of one worker, or of several lanes, that proves its promise window by window."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from headwater.clock import now_ns
from headwater.data.batch import CREATED
from headwater.data.column import Array
from headwater.data.jit import answering_at_once
from headwater.engine.dead import keeping
from headwater.engine.lanes import LaneRun, LanesRun
from headwater.engine.lanes.inlet import Inlet
from headwater.engine.lanes.lane import Keeping
from headwater.engine.lanes.layout import laid_out
from headwater.engine.options import Options
from headwater.engine.run import EngineRun
from headwater.engine.workers import WorkerPool
from headwater.errors import RateError, RunError
from headwater.flow.contract import Contract
from headwater.flow.endpoints import Reader, Source, tells_time
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.metrics import Report
from headwater.operators.counters import Latencies
from headwater.rate import born
from headwater.rate.admission import TRIAL_S, admit, lane_options, resumed
from headwater.rate.ahead import Ahead
from headwater.rate.client import Client
from headwater.rate.gate import Gate
from headwater.rate.grade import run_as_usual, run_in_real_time
from headwater.rate.messages import End
from headwater.rate.reservation import Reservation
from headwater.rate.watch import Watch
from headwater.rate.windows import Windows

log = logging.getLogger(__name__)


class PromisedRun(WorkerPool):
    """A run whose promise was admitted; its report has the windows kept and broken under `promise`."""

    def __init__(self, flow: Flow, options: Options, admitted: Reservation, client: Client) -> None:
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

    def promise(self) -> dict[str, Any]:
        """Return what was promised and reserved, and the windows so far."""
        return self._guard.promise()


class PromisedLanes(LanesRun):
    """A promised run in several lanes: they share what is reserved, and are judged as one."""

    shares = False  # one lane reads all, and counts what comes

    def __init__(self, flow: Flow, options: Options, admitted: Reservation, client: Client) -> None:
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
        return bool(self._lost) and born.kept is not None and bool(born.kept.pid)

    def _extra(self) -> dict[str, Any]:
        return {**super()._extra(), "promise": self.promise()}

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


def start(
    flow: Flow,
    contract: Contract | None = None,
    *,
    profile: Profile | None = None,
    best_effort: bool = False,
    realtime: bool = False,
    trial_s: float = TRIAL_S,
    client: Client | None = None,
    ahead: Ahead | None = None,
    dead: str | Path | None = None,
    **options: Any,
) -> PromisedRun | PromisedLanes:
    """Have a flow's promise admitted, and start it in this process, which from then on is its lane, or the first of them.

    RateError says why it cannot be, and what would fit. `options` are those of the engine, but for what makes a lane;
    with `dead`, dead letters are kept in this folder. What was asked for `ahead` is not asked for again.
    """
    asked = contract or flow.promised
    if asked is None:
        raise RateError(f"flow {flow.name!r} has no contract; give it one: flow.contract('20 000/s', '50 ms')")
    line = client or (Client() if ahead is None else ahead.client)
    admitted = resumed(line) or (None if ahead is None else ahead.taken(asked))
    if admitted is None:
        admitted = admit(flow, asked, line, profile=profile, best_effort=best_effort, trial_s=trial_s)
    try:
        if realtime:
            _in_real_time(flow, admitted.cores)
        kept = flow if dead is None else keeping(flow, dead)
        made = PromisedRun if admitted.lanes == 1 else PromisedLanes
        chosen = Options(**{**options, **lane_options(asked), "seconds": _left(options.get("seconds"), admitted)})
        with answering_at_once():
            running = made(kept, chosen, admitted, line).start()
        if realtime:
            run_as_usual()  # its threads have it from here, and nothing else should
        return running
    except BaseException:
        line.say(End(admitted.id))
        raise


def _left(seconds: float | None, admitted: Reservation) -> float | None:
    """Return for how long to read, of the time that was asked for before a lane died."""
    if seconds is None or admitted.before is None:
        return seconds
    return max(0.001, seconds - admitted.before.kept - admitted.before.broken - admitted.silent_s)


def _in_real_time(flow: Flow, cores: float) -> None:
    try:
        run_in_real_time(cores)
    except OSError as error:
        raise RateError(
            f"flow {flow.name!r} cannot run in real time ({error}): that needs root or CAP_SYS_NICE (a container's "
            "--cap-add SYS_NICE) and, where groups share real time out, some of it left (cpu.rt_runtime_us)"
        ) from None
