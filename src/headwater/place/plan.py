"""A plan: a file that says which flow runs where on which net, and how fast. `plan` writes it, `simulate` rehearses it.

By hand, the flow, the net and a place for every step are enough, in TOML or JSON::

    flow = "tanks.py"
    net = "farm.toml"

    [placement]
    levels = "barn/0"    # a device
    sound = "barn"       # a site: one of its devices
    alarms = "cloud"
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headwater.errors import FlowError, NetError, PlacementError, listed, suggestion
from headwater.flow.contract import Contract
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.net.net import Net
from headwater.place import best
from headwater.place.copies import with_copies
from headwater.place.from_flow import bridge_s, problem_of
from headwater.place.objective import Objective
from headwater.place.placement import Budget, Placement, judge
from headwater.place.problem import Model, Problem
from headwater.place.score import MEASURES

VERSION = 1
RATE_HZ = 1000.0
"""Records per second of every source when nothing else is said."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each step of a flow runs, and all that is needed to run it there.

    `flow` and `net` are references, as the command line takes them; paths are kept relative to the plan's own file.
    """

    flow: str
    """`path/to/flow.py[:name]` or `module:name`."""
    net: str
    """The path of a net file."""
    placement: Mapping[str, str]
    """Step → device or, of a site that leaves no choice or where any will do, the site."""
    rates_hz: float | Mapping[str, float] = RATE_HZ
    """What each source brings, or one number for all."""
    contract: Contract | None = None
    profile: str | Profile | None = None
    """What each step costs: the figures, or the path of a profile file."""
    measured_ips: float | None = None
    """The speed of the profile's machine, where that is no class of the net."""
    copies: Mapping[str, int] = field(default_factory=dict)
    """Steps that are shared out, with the number of copies; they are placed as `step #1`, `step #2` …"""
    model: Model = Model.ENGINE
    strategy: str = "by hand"
    objective: str = ""
    every: str | None = None
    """How often sites make checkpoints, for which records wait where they cross; None where no wait is counted."""
    predicted: Mapping[str, float | None] = field(default_factory=dict)
    """The measures of the placement; null where there is no end to one."""
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise PlacementError(f"the plan is of version {self.version}; this program reads {VERSION}")
        rates = self.rates_hz if isinstance(self.rates_hz, Mapping) else {"every source": self.rates_hz}
        for name, rate in rates.items():
            if not 0 <= rate < math.inf:
                raise PlacementError(f"the rate of {name} must be 0 or more records per second; got {rate}")
        if self.objective:
            Objective.parse(self.objective)
        if self.every is not None:
            bridge_s(self.every)

    @classmethod
    def of(
        cls,
        placement: Placement,
        *,
        flow: str,
        net: str | Path,
        profile: Profile | str | None = None,
        rates_hz: float | Mapping[str, float] = RATE_HZ,
        measured_ips: float | None = None,
        copies: Mapping[str, int] | None = None,
        contract: Contract | None = None,
        every: str | None = None,
    ) -> Plan:
        """The plan that a strategy's answer is, with references to what it was asked of."""
        if placement.device is None:
            raise PlacementError(f"there is no plan of '{placement.problem.name}': {placement.reason}")
        score = placement.score
        values = {name: score.measure(name) for name in MEASURES}
        return cls(
            flow=flow,
            net=str(net),
            placement=placement.by_name,
            rates_hz=rates_hz,
            contract=contract,
            profile=profile,
            measured_ips=measured_ips,
            copies=copies or {},
            model=placement.problem.model,
            strategy=placement.strategy,
            objective=str(placement.objective),
            every=every,
            predicted={name: value if math.isfinite(value) else None for name, value in values.items()},
        )

    def bind(self, flow: Flow, net: Net, profile: Profile | None = None) -> Placement:
        """The placement that the plan is for this flow on this net; one that breaks a constraint is an error.

        `profile` replaces that of the plan. The device of a step for which the plan names a site is chosen here.
        """
        profile = profile or self.figures()
        if profile is None:
            raise PlacementError(
                f"the plan of flow '{flow.name}' has no profile; measure one with 'headwater profile', and name it there"
            )
        problem = problem_of(
            flow, net, profile, self.rates_hz, measured_ips=self.measured_ips, model=self.model, every=self.every
        )
        for step, count in self.copies.items():
            problem = with_copies(problem, step, count)
        # the sources stand where the plan says, not where the net has a sensor
        return self._solve(dataclasses.replace(problem, pinned=np.full(len(problem.steps), -1)))

    def figures(self) -> Profile | None:
        """What each step costs: that of the plan, or of the file it names; None if it says nothing about it."""
        return Profile.load(Path(self.profile)) if isinstance(self.profile, str) else self.profile

    def _solve(self, problem: Problem) -> Placement:
        budget = Budget(objective=Objective.parse(self.objective) if self.objective else None)
        pinned = self._pin(problem)
        if (pinned.pinned >= 0).all():
            answer = judge(problem, self.strategy, pinned.pinned, budget, 0.0)
        else:
            choice = best.quick(pinned, budget) or best.solve(pinned, budget)
            answer = choice if choice.device is None else judge(problem, self.strategy, choice.device, budget, 0.0)
        if answer.device is None:
            raise PlacementError(
                f"the plan of flow '{problem.name}' does not hold on net '{problem.net.name}': {answer.reason}"
            )
        return answer

    def _pin(self, problem: Problem) -> Problem:
        """The problem that has only this plan for an answer: steps pinned to devices, or kept to a site."""
        net, pinned = problem.net, problem.pinned.copy()
        allowed = np.ones((len(problem.steps), len(net.zones)), bool)
        for name in self.placement:
            if name not in problem.steps:
                slip = suggestion(name, problem.steps) or f"; its steps are {listed(problem.steps)}"
                raise PlacementError(f"the plan places step '{name}', which flow '{problem.name}' does not have{slip}")
        for i, name in enumerate(problem.steps):
            at = self.placement.get(name)
            if at is None:
                raise PlacementError(f"the plan does not say where step '{name}' of flow '{problem.name}' runs")
            try:
                pinned[i] = net.device(at)
            except NetError as slip:
                if at not in net.zones:
                    raise PlacementError(f"the plan puts step '{name}' on '{at}': {slip}") from None
                allowed[i] = np.arange(len(net.zones)) == net.zone(at)
        return dataclasses.replace(problem, pinned=pinned, zone_allowed=allowed)

    # -- files ------------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, with paths relative to it; what was there is replaced at once or not at all."""
        path = Path(path)
        if path.suffix != ".json":
            raise PlacementError(f"a plan is written as JSON: its file must end in .json; got '{path}'")
        near = self._with_paths(lambda name: Path(os.path.relpath(name, path.parent)).as_posix())
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(near)) + b"\n")
        beside.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a `.json` or `.toml` file, written by `save` or by hand."""
        path = Path(path)
        try:
            document = _parse(path)
            _check_fields(document)
            plan = msgspec.convert(document, cls)
        except msgspec.ValidationError as slip:
            raise PlacementError(f"plan file '{path}': {slip}") from None
        except (PlacementError, FlowError) as slip:
            raise PlacementError(f"plan file '{path}': {slip}") from None
        return plan._with_paths(lambda name: os.path.normpath(path.parent / name))

    def _with_paths(self, change: Callable[[str], str]) -> Plan:
        """The plan with its paths seen from another folder; names of modules and absolute paths stay as they are."""

        def relocate(name: str) -> str:
            return name if Path(name).is_absolute() else change(name)

        head, colon, attribute = self.flow.partition(".py:")
        flow = self.flow
        if colon:
            flow = f"{relocate(head + '.py')}:{attribute}"
        elif self.flow.endswith(".py"):
            flow = relocate(self.flow)
        profile = relocate(self.profile) if isinstance(self.profile, str) else self.profile
        return dataclasses.replace(self, flow=flow, net=relocate(self.net), profile=profile)


def _parse(path: Path) -> dict[str, Any]:
    if path.suffix not in (".json", ".toml"):
        raise PlacementError(f"must end in .json or .toml; got '{path.suffix}'")
    try:
        text = path.read_text()
        document = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise PlacementError("there is no such file; 'headwater plan FLOW NET --output FILE' makes one") from None
    except (OSError, UnicodeDecodeError) as slip:
        raise PlacementError(f"cannot be read: {slip}") from None
    except (msgspec.DecodeError, tomllib.TOMLDecodeError) as slip:
        raise PlacementError(f"is not {path.suffix[1:].upper()}: {slip}") from None
    if not isinstance(document, dict):
        raise PlacementError(f"must hold a table with flow, net and placement; got {type(document).__name__}")
    return document


def _check_fields(document: Mapping[str, Any]) -> None:
    fields = [field.name for field in dataclasses.fields(Plan)]
    missing = [name for name in ("flow", "net", "placement") if name not in document]
    if missing:
        raise PlacementError(f"does not say {_description_of(missing[0])}{_likely_slip(document)}")
    for name in document:
        if name not in fields:
            slip = suggestion(name, fields) or f"; a plan has {', '.join(fields)}"
            raise PlacementError(f"'{name}' is nothing of a plan{slip}")


def _description_of(name: str) -> str:
    return {
        "flow": 'which flow it is for: flow = "path/to/flow.py"',
        "net": 'on which net: net = "path/to/net.toml"',
        "placement": "where each step runs: a table 'placement' with a device or a site for every step",
    }[name]


def _likely_slip(document: Iterable[str]) -> str:
    """What a file that is no plan may be instead."""
    fields = set(document)
    if {"status", "placement", "paths"} <= fields:
        return "; this looks like what 'headwater plan --json' prints: write a plan with --output"
    if {"classes", "zones"} <= fields:
        return "; this looks like a net"
    if {"device", "steps"} <= fields:
        return "; this looks like a profile"
    return ""
