"""A promise that another runner keeps, with threads and processes of its own: an application such as Spark's.

It has whole cores, since nobody can say how its threads share them: as many as the engine would need, rounded up. Its bound
is in seconds: it works in micro-batches. What it starts is protected as this process is, in whose group it is born. Its
runner tells when records of which moment have left; what has come is counted once it was read. One whose work is done on
other machines has none of the cores of this one held: its windows are counted, and that is all.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headwater.clock import now_ns
from headwater.data.column import Array
from headwater.errors import RateError, RunError
from headwater.flow.contract import Contract
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.metrics import Report, Sample
from headwater.processes import family
from headwater.rate.admission import dearer_anew, demand_of, granted_or_refused
from headwater.rate.client import Client
from headwater.rate.estimate import cores, tick_of
from headwater.rate.messages import End
from headwater.rate.micro_batches import why_not
from headwater.rate.reservation import Reservation
from headwater.rate.watch import Watch

_AT_ONCE = 2  #: micro-batches' worth of records that one may have, to catch up with what came meanwhile
_BATCHES = 4  #: micro-batches that fit into the promised latency
_LONGEST_S = 1.0  #: between two of them: more saves next to nothing


class Application:
    """A promise that was admitted for what another runner does in this process, and in those that it starts."""

    def __init__(
        self,
        flow: Flow,
        contract: Contract,
        *,
        profile: Profile | None = None,
        best_effort: bool = False,
        elsewhere: bool = False,
        client: Client | None = None,
    ) -> None:
        """Have it admitted; RateError says why it cannot be, and what would fit. `elsewhere`: on other machines."""
        if why := why_not(contract):
            raise RateError(
                f"flow {flow.name!r} cannot be promised {contract} by an application such as Spark's: {why}"
            )
        line = client or Client()
        demand = demand_of(flow, contract, profile)
        estimated = cores(demand, contract.rate_hz, tick_of(contract))
        #: whole cores, of which it gets as many threads: by what the steps take on the engine, for want of a trial
        self.cores = max(1, math.ceil(estimated))
        reserved_cores = 0.0 if elsewhere else float(self.cores)
        reservation = Reservation("", contract, demand, estimated, None, reserved_cores, "", "", lanes=0)
        dearer = dearer_anew(profile)
        self.admitted = granted_or_refused(line, flow, reservation, best_effort=best_effort, dearer=dearer)
        self._line = line
        self._guard = Watch(self.admitted, line, _AT_ONCE * self.batch_s)
        self._begun = False

    @property
    def batch_s(self) -> float:
        """How often a micro-batch should begin."""
        latency_s = self.admitted.contract.latency_s
        return _LONGEST_S if latency_s is None else min(_LONGEST_S, latency_s / _BATCHES)

    @property
    def batch_records(self) -> int:
        """How many records a micro-batch may have."""
        return math.ceil(_AT_ONCE * self.admitted.contract.rate_hz * self.batch_s)

    def left(self, created_ns: Array) -> None:
        """Take note of records that a sink has taken, by when they were created; windows begin with the first of them."""
        windows = self._guard.windows
        if not self._begun:
            self._begun = True
            windows.begin(now_ns())  # until then it was being started
        windows.left(created_ns, now_ns())
        if len(created_ns):
            windows.came(created_ns)

    def started(self, start: Callable[[], Any]) -> PromisedApplication:
        """Start the run and watch over it; what is held is let go where it does not start."""
        try:
            running = start()
        except BaseException:
            self._line.say(End(self.admitted.id))
            raise
        return PromisedApplication(running, self.admitted, self._guard)


class PromisedApplication:
    """A run of another runner that was promised a rate, as `headwater.run.Run` has it."""

    def __init__(self, running: Any, admitted: Reservation, guard: Watch) -> None:
        self._running, self.admitted, self._guard = running, admitted, guard
        self.flow: Flow = running.flow
        self.stopping: threading.Event = running.stopping
        self.done: threading.Event = running.done
        self._read = 0
        guard.windows.begin(now_ns())
        guard.thread(self).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._running, name)

    def processes(self) -> Sequence[int]:
        """Return this process and all that it has started."""
        return family(os.getpid())

    def sample(self) -> Sample:
        """Return everything counted since the run began."""
        now: Sample = self._running.sample()
        if now.records_in > self._read:
            self._guard.bucket.take(now.records_in - self._read, now_ns() / 1e9)
            self._read = now.records_in
        return now

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end as every run does, and then let go what was reserved."""
        try:
            report: Report | None = self._guard.until_over(lambda: self._running.wait(timeout_s))
        except RunError as error:
            if error.report is not None:
                error.report.extra["promise"] = self.promise()
            raise
        if report is not None:
            report.extra["promise"] = self.promise()
        return report

    def report(self) -> Report:
        """Return what the run has done so far, and the windows of its promise."""
        report: Report = self._running.report()
        report.extra["promise"] = self.promise()
        return report

    def promise(self) -> dict[str, Any]:
        """Return what was promised and reserved, and the windows so far."""
        return self._guard.promise()
