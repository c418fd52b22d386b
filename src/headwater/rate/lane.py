"""A promised flow at work: a run of one worker that proves its promise window by window, and tells the supervisor."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from headwater.clock import now_ns
from headwater.data.batch import CREATED
from headwater.data.column import Array
from headwater.data.jit import answering_at_once
from headwater.engine.dead import keeping
from headwater.engine.options import Options
from headwater.engine.workers import WorkerPool
from headwater.errors import RateError
from headwater.flow.contract import Contract
from headwater.flow.endpoints import Reader, Source
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.metrics import Report
from headwater.operators.counters import Latencies
from headwater.rate import process
from headwater.rate.admission import TRIAL_S, Admitted, admit, lane_options
from headwater.rate.bucket import Bucket
from headwater.rate.client import Client
from headwater.rate.estimate import backlog, tick_of
from headwater.rate.gate import Gate
from headwater.rate.grade import run_as_usual, run_in_real_time
from headwater.rate.messages import Ask, End, Granted, Noted, Tell
from headwater.rate.windows import TAKEN, Reading, Windows

log = logging.getLogger(__name__)

_LOOK_S = 0.1  #: how often it looks whether more comes than was promised
_TOLD = 20  #: broken windows that a report has


class PromisedRun(WorkerPool):
    """A run whose promise was admitted; its report has the windows kept and broken under `promise`."""

    def __init__(self, flow: Flow, options: Options, admitted: Admitted, client: Client) -> None:
        self.admitted, self._client = admitted, client
        self._id = admitted.id
        contract = admitted.contract
        self.windows = Windows(contract, admitted.cores, now_ns())
        # what gathers for a tick comes at once, and is no burst
        self.bucket = Bucket(contract.rate_hz, contract.burst_records + contract.rate_hz * tick_of(contract))
        super().__init__(flow, options)
        for task in self.tasks:
            if task.instance.step.is_sink:
                task.latencies = _Watched(self.windows)
        self._used: list[float] = []

    def read_through(self, reader: Reader, source: Source) -> Reader:
        """Put the gate before a source."""
        return Gate(reader, source.schema, self.bucket, self.windows)

    def make_threads(self) -> list[threading.Thread]:
        """Return the worker, and who watches over the promise."""
        return [*super().make_threads(), threading.Thread(target=self._monitor, name="promise", daemon=True)]

    def start(self) -> Self:
        """Start; windows begin now."""
        self.windows.begin(now_ns())
        return super().start()

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end as every run does, and then let go what was reserved."""
        try:
            report = super().wait(timeout_s)
        except BaseException:
            self._let_go()
            raise
        if report is not None:
            self._let_go()
        return report

    def _let_go(self) -> None:
        try:
            self._client.say(End(self._id))
        except RateError as error:  # whoever comes next finds that this process is gone
            log.debug("%s", error)
        self._client.close()

    # -- the proof ------------------------------------------------------------------------------------------------------

    def _monitor(self) -> None:
        """Judge every window while records are read, and tell the supervisor; soon, when more comes than was promised."""
        second, exceeded, above = 0, 0, False
        before = self._reading()
        while not self.done.wait(_LOOK_S):
            is_above, exceeded = self.bucket.exceeded > exceeded, self.bucket.exceeded
            reached = self.windows.second(now_ns())
            due = reached > second and not self.stopping.is_set()
            if due:
                now = self._reading()
                reading = now.since(before)
                for each in range(second, reached):  # more than one where this thread did not get to run
                    self.windows.read(each, reading)
                self._used.append(reading.used)
                second, before = reached, now
            if due or is_above != above:
                above = is_above
                self._tell(above)

    def _reading(self) -> _Counted:
        now = self.sample()
        return _Counted(
            time.monotonic(),
            time.process_time(),
            process.waited_ns() / 1e9,
            now.backpressure_s,
            backlog(self.admitted.demand, now),
        )

    def _tell(self, above: bool) -> None:
        judged = self.windows.judged()
        kept = sum(window.kept for window in judged)
        used = self._used[-1] if self._used else 0.0
        try:
            reply = self._client.say(Tell(self._id, used, kept, len(judged) - kept, above))
            if isinstance(reply, Noted) and not reply.known:
                self._ask_again()
        except RateError as error:
            log.warning("%s", error)

    def _ask_again(self) -> None:
        """Ask a supervisor that lost its book to hold what was held."""
        admitted = self.admitted
        reply = self._client.say(Ask(self.flow.name, admitted.contract, admitted.cores, best_effort=True))
        if isinstance(reply, Granted):
            self._id = reply.id
        else:
            log.warning("the cores of flow %s are no longer reserved: %s", self.flow.name, reply)

    def _extra(self) -> dict[str, Any]:
        return {**super()._extra(), "promise": self.promise()}

    def promise(self) -> dict[str, Any]:
        """Return what was promised and reserved, and the windows so far."""
        judged, admitted = self.windows.judged(), self.admitted
        broken = [window for window in judged if not window.kept]
        return {
            "contract": asdict(admitted.contract),
            "grade": admitted.grade,
            "how": admitted.how,
            "estimated_cores": round(admitted.estimated, 4),
            "reserved_cores": round(admitted.cores, 4),
            "used_cores": round(sum(self._used) / len(self._used), 4) if self._used else 0.0,
            "windows": len(judged),
            "kept": len(judged) - len(broken),
            "causes": dict(Counter(window.cause for window in broken)),
            "broken": [asdict(window) for window in broken[:_TOLD]],
            "above": self.bucket.exceeded,
        }


@dataclass(frozen=True, slots=True)
class _Counted:
    """What has been used and waited for since the process began, in seconds, and what waits now."""

    at_s: float
    cpu_s: float
    waited_s: float
    held_s: float
    backlog: float

    def since(self, before: _Counted) -> Reading:
        span_s = max(self.at_s - before.at_s, 1e-9)
        waited = (self.waited_s - before.waited_s) / span_s
        return Reading(
            used=(self.cpu_s - before.cpu_s) / span_s,
            waited=waited,
            held=(self.held_s - before.held_s) / span_s,
            backlog=self.backlog,
            rivals=tuple(process.foreign_real_time()) if waited > TAKEN else (),
        )


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
    dead: str | Path | None = None,
    **options: Any,
) -> PromisedRun:
    """Have a flow's promise admitted, and start it in this process, which from then on is its lane.

    RateError says why it cannot be, and what would fit. `options` are those of the engine, but for what makes a lane;
    with `dead`, dead letters are kept in this folder.
    """
    asked = contract or flow.promised
    if asked is None:
        raise RateError(f"flow {flow.name!r} has no contract; give it one: flow.contract('20 000/s', '50 ms')")
    line = client or Client()
    admitted = admit(flow, asked, line, profile=profile, best_effort=best_effort, trial_s=trial_s)
    try:
        if realtime:
            _in_real_time(flow, admitted.cores)
        kept = flow if dead is None else keeping(flow, dead)
        with answering_at_once():
            running = PromisedRun(kept, Options(**{**options, **lane_options(asked)}), admitted, line).start()
        if realtime:
            run_as_usual()  # its threads have it from here, and nothing else should
        return running
    except BaseException:
        line.say(End(admitted.id))
        raise


def _in_real_time(flow: Flow, cores: float) -> None:
    try:
        run_in_real_time(cores)
    except OSError as error:
        raise RateError(
            f"flow {flow.name!r} cannot run in real time ({error}): that needs root or CAP_SYS_NICE (a container's "
            "--cap-add SYS_NICE) and, where groups share real time out, some of it left (cpu.rt_runtime_us)"
        ) from None
