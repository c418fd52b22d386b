"""Who watches over a promise while its flow runs: judges every window, and tells the supervisor how it fares."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from headwater.clock import now_ns
from headwater.errors import RateError
from headwater.flow.flow import Flow
from headwater.metrics import Report, Sample
from headwater.processes import family
from headwater.rate import fork_context, process
from headwater.rate.bucket import Bucket
from headwater.rate.client import Client
from headwater.rate.estimate import backlog, tick_of
from headwater.rate.messages import Board, End, Granted, Noted, Status, Tell
from headwater.rate.reservation import Reservation
from headwater.rate.windows import TAKEN, Reading, Windows

log = logging.getLogger(__name__)

_LOOK_S = 0.1  #: how often it looks whether more comes than was promised


class WatchedRun(Protocol):
    """What it has to know of a run."""

    flow: Flow
    stopping: threading.Event
    done: threading.Event

    def sample(self) -> Sample:
        """Return everything counted since the run began."""

    def processes(self) -> Sequence[int]:
        """Return the processes that do the work."""


class Watch:
    """The windows of a promise, its bucket, and the line to the supervisor, to which a trial says nothing."""

    def __init__(self, admitted: Reservation, client: Client | None, gathers_s: float | None = None) -> None:
        """`gathers_s` is for how long records gather before they are read, a tick unless said."""
        self.admitted, self._client, self._id = admitted, client, admitted.id
        contract = admitted.contract
        self.windows = Windows(contract, admitted.cores, now_ns(), max(1, admitted.lanes))
        if admitted.before is not None:
            before = admitted.before
            self.windows.resume(before.kept, before.causes, admitted.silent_s)
        # what has gathered comes at once, and is no burst
        gathered = contract.rate_hz * (tick_of(contract) if gathers_s is None else gathers_s)
        self.bucket = Bucket(contract.rate_hz, contract.burst_records + gathered)
        self._used: list[float] = [0.0, 0.0]  #: cores in all windows so far, added up, and in the last one
        self._looks = 0
        self._complaint = ""  #: what was last said of a supervisor that does not answer

    def thread(self, run: WatchedRun) -> threading.Thread:
        """Return the thread that watches a run, not yet started."""
        return threading.Thread(target=self._loop, args=(run,), name="promise", daemon=True)

    def until_over(
        self, wait: Callable[[], Report | None], starts_again: Callable[[], bool] = lambda: False
    ) -> Report | None:
        """Wait for the end of a run as it does itself, and then let go what was reserved, unless it starts again."""
        try:
            report = wait()
        except BaseException:
            if not starts_again():
                self.let_go()
            raise
        if report is not None:
            self.let_go()
        return report

    @property
    def is_trial(self) -> bool:
        """Whether the promise is only tried: what is held for it is held on."""
        return self._client is None

    def let_go(self) -> None:
        """Let go what was reserved."""
        if self._client is None:
            return
        try:
            self._client.say(End(self._id))
        except RateError as error:  # whoever comes next finds that this process is gone
            log.debug("%s", error)
        self._client.close()

    def _loop(self, run: WatchedRun) -> None:
        """Judge every window while records are read, and tell the supervisor; soon, when more comes than was promised."""
        exceeded, above, stopped = 0, False, False
        serves_more = self.admitted.contract.above == "best effort"
        before = self._reading(run)
        if self._client is not None:
            self._tell(run, self._client, above)
        while not run.done.wait(_LOOK_S):
            # what comes at once and is no more than was promised, by when it was made, has waited somewhere: by a lane that
            # weighs little for that it would wait the longer. What is shed or left unread is no work, and hurts nobody
            exceeds, exceeded = self.bucket.exceeded > exceeded, self.bucket.exceeded
            is_above = exceeds and serves_more and self.windows.is_above(now_ns())
            due = range(0) if stopped else self.windows.due(now_ns())
            stopped = (
                run.stopping.is_set()
            )  # the windows before that count, also where this thread comes to run only now
            if due:
                now = self._reading(run)
                reading = now.since(before, run.flow)
                if reading.waited > TAKEN and self.windows.is_breaking(due[-1], now.backlog):
                    reading = replace(reading, rivals=tuple(process.foreign_real_time(self._lanes(run))))
                for each in due:  # more than one where this thread did not get to run
                    self.windows.read(each, reading)
                self._looks += 1
                self._used = [self._used[0] + reading.used, reading.used]
                before = now
            if due or is_above != above:
                above = is_above
                if self._client is not None:
                    self._tell(run, self._client, above)

    def _reading(self, run: WatchedRun) -> _Counted:
        now, pids = run.sample(), run.processes()
        waiting = backlog(self.admitted.demand, now)
        return _Counted(
            time.monotonic(),
            sum(process.used_s(pid) for pid in pids),
            max(process.waited_ns(pid) for pid in pids) / 1e9,
            now.backpressure_s,
            waiting,
            now.records_in - waiting,
            {name: step.busy_ns / 1e9 for name, step in now.steps.items()},
        )

    def _lanes(self, run: WatchedRun) -> set[int]:
        """Return the processes of all lanes here: those within their promise are of real time, as this one is."""
        own = set(run.processes())
        if self._client is not None:
            with suppress(RateError):
                current = self._client.say(Status())
                assert isinstance(current, Board)
                own.update(pid for lane in current.lanes for pid in family(lane.pid))
        return own

    def _tell(self, run: WatchedRun, client: Client, above: bool) -> None:
        verdict = self.windows.verdict()
        broken = verdict.windows - verdict.kept
        try:
            message = Tell(self._id, self._used[1], verdict.kept, broken, above, dict(verdict.causes), verdict.close)
            reply = client.say(message)
            if isinstance(reply, Noted) and not reply.known:
                self._ask_again(run, client)
            self._complaint = ""
        except RateError as error:
            if str(error) != self._complaint:  # and not every second
                log.warning("%s; flow %s goes on, and tells it when it does", error, run.flow.name)
            self._complaint = str(error)

    def _ask_again(self, run: WatchedRun, client: Client) -> None:
        """Ask a supervisor that lost its book to hold what was held."""
        reply = client.say(self.admitted.ask(run.flow.name, best_effort=True))
        if isinstance(reply, Granted):
            self._id = reply.id
        else:
            log.warning("the cores of flow %s are no longer reserved: %s", run.flow.name, reply)

    def promise(self) -> dict[str, Any]:
        """Return what was promised and reserved, and the windows so far."""
        verdict, admitted = self.windows.verdict(), self.admitted
        return {
            "contract": asdict(admitted.contract),
            "grade": admitted.grade,
            "how": admitted.how,
            "lanes": admitted.lanes,
            "estimated_cores": round(admitted.estimated, 4),
            "reserved_cores": round(admitted.cores, 4),
            "used_cores": round(self._used[0] / self._looks, 4) if self._looks else 0.0,
            "windows": verdict.windows,
            "kept": verdict.kept,
            "causes": dict(verdict.causes),
            "broken": [asdict(window) for window in verdict.broken],
            "above": self.bucket.exceeded,
            "restarts": 0 if fork_context.keeper is None else fork_context.keeper.deaths,
        }


@dataclass(frozen=True, slots=True)
class _Counted:
    """What has been used and waited for since the processes began, in seconds, and what waits now."""

    at_s: float
    cpu_s: float
    waited_s: float
    held_s: float
    backlog: float
    done: float  #: records that have left
    busy_s: Mapping[str, float]  #: by step, in which a worker was in it

    def since(self, before: _Counted, flow: Flow) -> Reading:
        """Return what was seen since."""
        span_s = max(self.at_s - before.at_s, 1e-9)
        used_s, waited_s = self.cpu_s - before.cpu_s, self.waited_s - before.waited_s
        busy_s = {name: each - before.busy_s.get(name, 0.0) for name, each in self.busy_s.items()}
        slowest = max(busy_s, key=lambda name: busy_s[name], default="")
        # while workers are in steps and neither compute nor wait for a processor, they wait for something else
        idle_s = sum(busy_s.values()) - used_s - waited_s
        in_sink = slowest in flow.steps and flow.steps[slowest].is_sink
        return Reading(
            used=used_s / span_s,
            waited=waited_s / span_s,
            held=(self.held_s - before.held_s) / span_s,
            backlog=self.backlog,
            done=(self.done - before.done) / span_s,
            blocked=max(0.0, idle_s / span_s) if in_sink else 0.0,
            sink=slowest if in_sink else "",
        )
