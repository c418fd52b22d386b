"""Plans made in a browser: of `headwater plan … --web`, until stopped, and beside sites; and what has one of them run."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater import net as nets
from headwater.cli.locate import find_flow
from headwater.cli.placement_options import Ask
from headwater.cli.question import Question, measure_flow
from headwater.cli.site_web import TOKEN
from headwater.cli.sites import STATE
from headwater.cli.web import dashboard_of_answers
from headwater.deploy.api.plans import Plans
from headwater.deploy.api.routes import Answers
from headwater.deploy.api.sites import Sites
from headwater.deploy.control.messages import Ask as Request
from headwater.deploy.coordinator.asking import NobodyError, ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.cut import Cut
from headwater.errors import HeadwaterError, PlacementError, RunError
from headwater.flow.flow import Flow
from headwater.net.net import Net
from headwater.place import Budget, Constraints, Plan, Problem
from headwater.processes import wait_or_kill
from headwater.serve.home import token_of

NETS = (".toml", ".json", ".npz")
_PLAN, _LOG = "plan.json", "deploy.log"
_UP_S = 60.0  #: for a coordinator to answer that was started
_END_S = 10.0


def plan_in_browser(
    references: list[str], options: Ask, constraints: Constraints, budget: Budget, state: Path | None, listen: str
) -> None:
    """Have flows placed on nets from a page, until somebody interrupts; `references` are flows, and files of nets."""
    net_files = {Path(text).stem: Path(text) for text in references if Path(text).suffix in NETS}
    flows = [text for text in references if Path(text).suffix not in NETS]
    if not net_files or not flows:
        raise PlacementError(
            f"--web takes flows and nets to choose from: FLOW... NET...; got {' '.join(references) or 'none'}"
        )
    folder = StateFolder(STATE if state is None else state)
    questions = {flow: options.question([flow]) for flow in flows}
    folder.identity()  # makes the folder
    leaving = threading.Event()
    before = {number: signal.signal(number, lambda *_: leaving.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    deployer = Deployer(folder)
    try:
        answers = Answers(Sites(folder), Plans(questions, net_files, constraints, budget, deployer), "plan")
        with dashboard_of_answers(answers, token_of(folder.path / TOKEN, must_exist=False), listen):
            while not leaving.wait(0.2):
                pass  # a signal that the system gives to another thread is heard when this one wakes
    finally:
        deployer.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def plans_of_flows(flows: list[str], net: Path, options: Ask, deployer: Deployer) -> Plans:
    """Return plans of flows on the net whose sites are here, for a page beside them."""

    def later(flow: str) -> LaterQuestion:
        return LaterQuestion(find_flow(flow), lambda: options.question([flow]))

    return Plans(
        {flow: later(flow) for flow in flows}, {net.stem: net}, options.constraints(), options.budget(), deployer
    )


def plans_of_plan(path: Path, folder: StateFolder) -> Plans | None:
    """Return plans of a flow that is deployed by a plan; None where a page could not say what that says.

    Its sources and sinks stay where they are: it is a flow that runs.
    """
    plan = Plan.load(path)
    if plan.copies:
        return None
    flow, net = find_flow(plan.flow), nets.read(plan.net)
    end_steps = [step.name for step in flow.steps.values() if step.is_source or step.is_sink]
    pins = {name: plan.placement[name] for name in end_steps if _is_device(net, plan.placement.get(name, ""))}

    def make_question() -> Question:
        rates = plan.rates_hz if isinstance(plan.rates_hz, float | int) else dict(plan.rates_hz)
        ips = None if plan.measured_ips is None else f"{plan.measured_ips:g}"
        return Question((flow,), (plan.figures() or measure_flow(flow),), rates, ips, plan.model, plan.every)

    deployer = Deployer(folder, may_start=False)
    questions = {plan.flow: LaterQuestion(flow, make_question)}
    return Plans(questions, {Path(plan.net).stem: Path(plan.net)}, Constraints(pins=pins), Ask().budget(), deployer)


def _is_device(net: Net, name: str) -> bool:
    try:
        net.device(name)
    except HeadwaterError:
        return False
    return True


class LaterQuestion:
    """A question that is made when it is first asked: to measure a flow takes a while, and perhaps nobody plans."""

    def __init__(self, flow: Flow, make: Callable[[], Question]) -> None:
        self.flows = (flow,)
        self._make = make
        self._lock = threading.Lock()
        self._cached: Question | None = None

    def on(self, *args: Any, **kwargs: Any) -> Problem:
        """Return the problem of placing it on a net."""
        return self._question().on(*args, **kwargs)

    def plan(self, *args: Any) -> Plan:
        """Return the plan that a placement is."""
        return self._question().plan(*args)

    def _question(self) -> Question:
        with self._lock:
            if self._cached is None:
                self._cached = self._make()
            return self._cached


class Deployer:
    """Has plans run: by the coordinator of a state folder, or, where it `may_start` one, by its own, which ends with it."""

    def __init__(self, folder: StateFolder, *, may_start: bool = True) -> None:
        self._folder, self._may_start = folder, may_start
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __call__(self, plan: Plan) -> dict[str, Any]:
        """Deploy a plan, or move a flow that is deployed to where it says; `says` tells which."""
        with self._lock:
            try:
                deployed = ask(self._folder, "status")["flow"]
            except NobodyError:
                if not self._may_start:
                    raise
                return self._start(plan)
            return self._move(plan, deployed)

    def close(self) -> None:
        """End the coordinator; the sites go on by themselves."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        wait_or_kill(process, _END_S)

    def _move(self, plan: Plan, deployed: dict[str, Any] | None) -> dict[str, Any]:
        flow = find_flow(plan.flow)
        if deployed is None or deployed["name"] != flow.name:
            other = "nothing" if deployed is None else f"flow '{deployed['name']}'"
            raise RunError(
                f"a coordinator runs with the state folder {self._folder.path}, which has {other} deployed; end it first: "
                f"headwater stop --forget --state {self._folder.path}"
            )
        sites = dict(Cut.of(plan, flow, nets.read(plan.net)).site_of)
        document = ask(self._folder, Request("place", sites=sites))
        return {
            "says": f"Flow {flow.name} moves to where the plan says; the Sites page shows how far it is.",
            **document,
        }

    def _start(self, plan: Plan) -> dict[str, Any]:
        if self._process is not None and self._process.poll() is None:
            raise RunError("a plan is being deployed; wait until it is")
        path, log = self._folder.path / _PLAN, self._folder.path / _LOG
        plan.save(path)
        command = [sys.executable, "-m", "headwater", "deploy", str(path), "--state", str(self._folder.path)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        until_s = time.monotonic() + _UP_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                lines = log.read_text("utf-8", "replace").strip().splitlines()
                raise RunError(f"the plan cannot be deployed: {lines[-1] if lines else 'see ' + str(log)}")
            try:
                document = ask(self._folder, "status")
            except NobodyError:
                time.sleep(0.1)
                continue
            return {"says": f"A coordinator hands each site its part; its log is {log}.", **document}
        raise RunError(f"the coordinator did not answer within {_UP_S:g} s; its log is {log}")
