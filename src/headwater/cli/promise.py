"""What commands say about promises: the contract of a command line, its run, and what the others give way to."""

from __future__ import annotations

import logging
import os
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headwater.cli.screen import err, progress, waiting
from headwater.engine.options import Options
from headwater.errors import FlowError, RateError, RunError
from headwater.flow.contract import Above, Contract, rate_hz
from headwater.flow.duration import microseconds_of
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile

if TYPE_CHECKING:
    from headwater.rate.application import Application

log = logging.getLogger(__name__)

#: what makes a lane, and is not for a user to choose
_LANES_OWN = ("workers", "take", "linger", "lanes")

_PATIENT_S = 10.0  #: until a supervisor that did not answer is asked again: the flow's end is not seen meanwhile


def contract_of(
    flow: Flow,
    rate: str | None,
    within: str | None = None,
    above: str | None = None,
    burst: float | None = None,
    *,
    option: str = "--promise",
) -> Contract | None:
    """Return what a command line asks for, or the flow's own contract where it asks for nothing; None without either.

    `option` is by which name it asked for the rate.
    """
    if rate is not None:
        try:
            is_rate = rate_hz(rate) > 0
        except FlowError as error:
            raise FlowError(f"{option}: {error}") from None
        if not is_rate:
            raise FlowError(f"{option} is a rate above 0, such as 20000/s; got {rate!r}")
        if within is not None and microseconds_of("--within", within) <= 0:
            raise FlowError(f"--within is a latency above 0, such as 50ms; got {within!r}")
        if burst is not None and not burst > 0:
            raise FlowError(f"--burst is a number of records above 0; got {burst:g}")
        return Contract.of(rate, within, burst=burst, above=cast(Above, above or "best effort"))
    own = flow.promised
    if not (within or above or burst):
        return own
    state = "has no contract" if own is None else f"has a contract of its own ({own})"
    raise FlowError(f"flow {flow.name!r} {state}; --within, --above and --burst need a rate: {option} RATE")


def can_keep(on: str, contract: Contract) -> bool:
    """Say whether a runner can be promised a contract: Spark is promised seconds, and reads its sources itself."""
    from headwater.rate.micro_batches import why_not

    return not why_not(contract) if on == "spark" else on == "engine"


def start_promised(
    flow: Flow,
    contract: Contract,
    engines: dict[str, Any],
    *,
    profile: Path | None,
    best_effort: bool,
    realtime: bool,
    **options: Any,
) -> Any:
    """Have a flow's contract admitted, say with what, and return the run in progress."""
    from headwater import rate

    usual = Options()
    for name in _LANES_OWN:
        if engines[name] is not None and engines[name] != getattr(usual, name, None):
            raise RunError(f"--{name} means nothing with a promise: a lane has one worker, and gathers by its latency")
    engine_options = {name: value for name, value in engines.items() if value is not None and name not in _LANES_OWN}
    with waiting(f"asking for {contract}"):
        running = rate.start(
            flow,
            contract,
            profile=None if profile is None else Profile.load(profile),
            best_effort=best_effort,
            realtime=realtime,
            **engine_options,
            **options,
        )
    admission = running.admitted
    trial = "no trial" if admission.measured is None else f"its trial used {admission.measured:.2f}"
    message = (
        f"{flow.name} is promised {contract}: {admission.cores:.2f} cores reserved ({trial}), grade {admission.grade}"
    )
    err.print(message, markup=False, highlight=False)  # which takes its time, and records may wait
    return running


class GivingWay:
    """Lets a flow that was promised nothing run only when those that were do not, as long as there are any here.

    `look` is for whoever waits for the flow, often; it looks once a second, from `begin` on.
    """

    def __init__(self, every_s: float = 1.0) -> None:
        self._every_s = every_s
        self._next_s = inf
        self._is_idle = False

    def begin(self) -> None:
        """Look for the first time, before the flow starts: what it starts is as this process is."""
        self._next_s = 0.0
        self.look()

    def look(self) -> None:
        """Have all processes of the flow as they should be now, if it is time to look again."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._every_s
        try:
            reason = self._reason()
        except OSError as error:  # such as no file descriptor left: no reason to end a flow
            log.debug("nobody can say whether promises are kept here: %s", error)
            return
        if not (reason or self._is_idle):
            return  # the usual case, for which nothing more is imported
        from headwater.processes import family
        from headwater.rate.grade import run_idle

        succeeded = run_idle(family(os.getpid()), idle=bool(reason))  # again at each look, for threads that are new
        if reason and not self._is_idle:
            _say(f"{reason}: this flow, which has no promise, runs at idle priority")
        elif not reason and succeeded:
            _say("no promise is left on this machine: this flow runs at its usual priority again")
        elif not reason:
            _say("no promise is left on this machine; the system does not let this user leave idle priority again")
            self._next_s = inf
        self._is_idle = bool(reason)

    def _reason(self) -> str:
        """Say that promises are kept here, or why they may be; nothing where there are none."""
        from headwater.rate.home import SOCKET, folder

        if not os.path.exists(folder() / SOCKET):  # not there, or not for this user to see
            return ""
        from headwater.rate import board

        try:
            promises = board()
        except RateError as error:  # there may be promises, and nobody tells
            self._next_s = time.monotonic() + _PATIENT_S
            return str(error)
        return "promises are kept on this machine" if promises is not None and promises.lanes else ""


def _say(text: str) -> None:
    err.print(text, soft_wrap=True, markup=False, highlight=False)


def start_promised_on_spark(
    flow: Flow, contract: Contract, *, profile: Path | None, best_effort: bool, master: str | None, **options: Any
) -> Any:
    """Have a flow's contract admitted for an application of Spark's of its own, and return the run in progress."""
    from headwater import spark
    from headwater.rate.application import Application

    if master is not None:
        raise RunError(
            "--master means nothing with a promise: cores are reserved on this machine, for a Spark of its own"
        )
    costs = None if profile is None else Profile.load(profile)
    with progress(f"asking for {contract}"):
        application = Application(flow, contract, profile=costs, best_effort=best_effort)
    admission = application.admitted
    _say(
        f"{flow.name} is promised {contract}: {application.cores} cores reserved for Spark (an estimate, without a trial: "
        f"the {admission.estimated:.2f} that the engine would need, rounded up), grade {admission.grade}"
    )
    with progress("starting Spark"):
        own = f"local[{application.cores}]"
        return application.started(lambda: spark.start(flow, master=own, **micro_batches(application), **options))


def micro_batches(application: Application) -> dict[str, Any]:
    """Return the options of Spark by which it works as its promise wants, and tells what leaves."""
    from headwater.flow.ranges import Sizes

    return {
        "every": f"{round(application.batch_s * 1e3)} milliseconds",
        "sizes": Sizes(application.cores, batch_records=application.batch_records),
        "on_written": application.left,
    }
