"""The systems that are compared, each over the same steps: how a flow is begun under one, and what it tells."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from headwater import engine, rate
from headwater.engine.lanes import LanesRun
from headwater.engine.run import EngineRun
from headwater.errors import RateError, RunError
from headwater.flow import Flow
from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate.client import Client
from headwater.rate.estimate import cores, tick_of
from headwater.rate.grade import grade_here
from headwater.rate.lane import lane_options
from headwater.rate.ledger import Reservation
from headwater.rate.messages import Ask
from headwater_bench.experiments.rates.lap import Lap, forced_group
from headwater_bench.experiments.rates.loads import Judge, Offered, flow_of
from headwater_bench.experiments.rates.memory import private_mb

_PROTECTED = 0.5  #: cores that an engine without a promise has reserved, to be compared with one that has


class System(Protocol):
    """A flow at work under one of the systems."""

    def used_s(self) -> float:
        """Return the processor time that it has used, in all its processes."""

    def account(self) -> dict[str, Any]:
        """Return what it says of itself."""

    def abort(self) -> None:
        """End at once."""


class Embedded:
    """A run of the engine in this process, promised a rate or not."""

    def __init__(self, running: EngineRun | LanesRun) -> None:
        self.running = running

    def used_s(self) -> float:
        """Return this process's time."""
        return time.process_time()

    def account(self) -> dict[str, Any]:
        """Return the promise, where there is one, after a look at what was lost on the way."""
        report = self.running.report()
        if report.dead_letters or report.shed:
            raise AssertionError(f"{report.flow}: {report.dead_letters} dead letters, {report.shed} shed")
        account: dict[str, Any] = {"private_mb": private_mb()}
        if isinstance(self.running, rate.PromisedRun | rate.PromisedLanes):
            account["promise"] = {**self.running.promise(), "admitted": asdict(self.running.admitted)["measured"]}
        return account

    def abort(self) -> None:
        """End at once."""
        self.running.abort()
        with suppress(RunError):
            self.running.wait(5)


def _forced(lap: Lap, contract: Contract, profile: Profile | None, flow: Flow) -> Embedded:
    """Start a lane with a group of its own that no ledger knows of."""
    demand = None if profile is None else profile.demand
    if demand is None:
        raise RateError("a lane that is forced in needs a profile with a demand")
    needed = cores(demand, contract.rate_hz, tick_of(contract))
    pid = os.getpid()
    grade_here().protect(Reservation(forced_group(pid), flow.name, contract, needed, pid, 0))
    return Embedded(engine.start(flow, **lane_options(contract)))


def begin(lap: Lap, source: Offered, judge: Judge) -> System:
    """Start a lap's flow under its system; RateError where its promise is refused."""
    contract = Contract(lap.promised_hz, lap.bound_s)
    if lap.system == "dhalion":
        from headwater_bench.experiments.rates.dhalion import (
            Dhalion,
        )  # the start of a lane is measured: it loads no more

        return Dhalion(lap, source, judge)
    if lap.system == "serverless":
        from headwater_bench.experiments.rates.serverless import Serverless

        return Serverless(lap, source, judge)
    flow = flow_of(lap.flow, source, judge)
    if lap.system == "promised":
        profile = None if lap.profile is None else Profile.load(Path(lap.profile))
        if lap.forced:
            return _forced(lap, contract, profile, flow)
        return Embedded(rate.start(flow, contract, profile=profile, best_effort=True, trial_s=lap.trial_s))
    if lap.system == "unprotected":
        return Embedded(engine.start(flow, **lane_options(contract)))
    if lap.system == "threads":
        return Embedded(engine.start(flow, on="threads"))
    if lap.system == "longest_queue":
        return Embedded(engine.start(flow, policy="longest_queue"))
    if lap.system == "protected":
        Client().say(Ask(flow.name, contract, _PROTECTED, best_effort=True))
        return Embedded(engine.start(flow))
    raise RunError(f"there is no system {lap.system!r}")
