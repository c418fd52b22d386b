"""Starts a promised flow in this process: asks for its promise, and has its lanes begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.engine.dead import keeping
from headwater.errors import RateError
from headwater.flow.contract import Contract
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.rate.admission import admit, resumed
from headwater.rate.advance_reservation import AdvanceReservation
from headwater.rate.client import Client
from headwater.rate.grade import run_as_usual, run_in_real_time
from headwater.rate.lane import PromisedLanes, PromisedRun, begin
from headwater.rate.messages import End
from headwater.rate.reservation import Reservation
from headwater.rate.trial import TRIAL_S


def start(
    flow: Flow,
    contract: Contract | None = None,
    *,
    profile: Profile | None = None,
    best_effort: bool = False,
    realtime: bool = False,
    trial_s: float = TRIAL_S,
    client: Client | None = None,
    ahead: AdvanceReservation | None = None,
    dead: str | Path | None = None,
    **options: Any,
) -> PromisedRun | PromisedLanes:
    """Have a flow's promise admitted, and start it in this process, which from then on is its lane, or the first of them.

    RateError says why it cannot be, and what would fit. `options` are those of the engine, but for what makes a lane;
    with `dead`, dead letters are kept in this folder. What was asked for `ahead` is not asked for again.
    """
    promise = contract or flow.promised
    if promise is None:
        raise RateError(f"flow {flow.name!r} has no contract; give it one: flow.contract('20 000/s', '50 ms')")
    line = client or (Client() if ahead is None else ahead.client)
    admitted = resumed(line) or (None if ahead is None else ahead.take(promise))
    if admitted is None:
        admitted = admit(flow, promise, line, profile=profile, best_effort=best_effort, trial_s=trial_s)
    try:
        if realtime:
            _in_real_time(flow, admitted.cores)
        flow_to_run = flow if dead is None else keeping(flow, dead)
        left_s = _remaining_s(options.get("seconds"), admitted)
        running = begin(flow_to_run, admitted, line, **{**options, "seconds": left_s})
        if realtime:
            run_as_usual()  # its threads have it from here, and nothing else should
        return running
    except BaseException:
        line.say(End(admitted.id))
        raise


def _remaining_s(seconds: float | None, admitted: Reservation) -> float | None:
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
