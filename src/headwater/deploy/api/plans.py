"""Placements of flows on nets, for whoever looks at them side by side: found, changed by hand, rehearsed, deployed."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from headwater import net as nets
from headwater import sim
from headwater.errors import PlacementError, listed, suggestion
from headwater.flow.flow import Flow
from headwater.net.arrays import Ints
from headwater.net.net import Net
from headwater.place import Budget, Constraints, Objective, Placement, Plan, Problem, score, strategy, violations
from headwater.place.account import account
from headwater.place.candidates import candidates
from headwater.place.objective import usual
from headwater.place.problem import TURN
from headwater.place.score import MEASURES
from headwater.place.what_if import front
from headwater.place.why import why

_TRIED = 64  #: devices that are tried for each step, to say why it is where it is
_OFFERED = 48  #: devices that are offered for a step that is moved by hand
_POINTS = 5


class Question(Protocol):
    """A flow with what it costs and how fast it runs; the net is said when it is asked."""

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The flow, alone."""

    def on(
        self,
        net: Net,
        copies: Mapping[str, int] | None = None,
        constraints: Constraints | None = None,
        *,
        places: bool = True,
    ) -> Problem:
        """The problem of placing it on a net."""

    def plan(self, placement: Placement, flow: str, net: Path, copies: Mapping[str, int]) -> Plan:
        """The plan that a placement is."""


class Plans:
    """Answers for placements of some flows on some nets, whatever thread asks; one search at a time."""

    def __init__(
        self,
        questions: Mapping[str, Question],
        found_nets: Mapping[str, Path],
        constraints: Constraints,
        budget: Budget,
        deploy: Callable[[Plan], dict[str, Any]],
    ) -> None:
        """Take flows by their references and nets by their names; `deploy` has a plan run, and says what came of that."""
        self._questions, self._nets, self._constraints, self._budget = questions, found_nets, constraints, budget
        self._deploy = deploy
        self._searching = threading.Lock()
        self._problems: dict[tuple[str, str], Problem] = {}

    def choices(self) -> dict[str, Any]:
        """Say what there is to choose from."""
        flows = [
            {"flow": reference, "name": question.flows[0].name, "steps": list(question.flows[0].steps)}
            for reference, question in self._questions.items()
        ]
        return {"flows": flows, "nets": list(self._nets), "measures": list(MEASURES)}

    def search(self, flow: str, net: str, objective: str) -> dict[str, Any]:
        """Search for the best placement, and account for it: why each step is where it is, what else is to be had."""
        problem = self._problem(flow, net, anew=True)
        with self._searching:
            best = strategy("best")(problem, self._budget_for(objective))
            if best.device is None:
                return _account(best) | {"broken": [best.reason]}
            return _account(best) | {"why": [dataclasses.asdict(reason) for reason in why(best, most=_TRIED)]}

    def tried(self, flow: str, net: str, objective: str, placement: Mapping[str, str]) -> dict[str, Any]:
        """Account for a placement by hand, also for one that breaks a constraint: `broken` says which."""
        problem = self._problem(flow, net)
        by_hand = self._by_hand(problem, objective, placement)
        assert by_hand.device is not None
        broken = [str(violation) for violation in violations(problem, by_hand.device.tolist())]
        return _account(by_hand) | {"broken": broken}

    def front(self, flow: str, net: str, one: str, other: str) -> dict[str, Any]:
        """Return placements from the best in one measure to the best in another, each with its account."""
        for name in (one, other):
            if name not in MEASURES:
                slip = suggestion(name, MEASURES) or f"; known: {listed(MEASURES)}"
                raise PlacementError(f"there is no measure '{name}'{slip}")
        if one == other:
            raise PlacementError(f"a front is between two measures; got '{one}' twice")
        problem = self._problem(flow, net, anew=True)
        with self._searching:
            points = front(problem, one, other, points=_POINTS, budget=self._budget)
        return {"one": one, "other": other, "points": [_account(point) for point in points]}

    def rehearsed(self, flow: str, net: str, placement: Mapping[str, str], seconds: float) -> dict[str, Any]:
        """Play a placement in virtual time, and report it like a run; one that breaks a constraint is refused."""
        problem = self._problem(flow, net)
        by_hand = self._sound(problem, "", placement)
        with self._searching:
            options = sim.EngineOptions(seconds, self._budget.seed, workers=1, take=TURN)
            return sim.run(by_hand, options).to_json()

    def deployed(self, flow: str, net: str, objective: str, placement: Mapping[str, str]) -> dict[str, Any]:
        """Have a placement run, and say what came of that."""
        sound = self._sound(self._problem(flow, net), objective, placement)
        return self._deploy(self._questions[flow].plan(sound, flow, self._nets[net], {}))

    # -- what is asked about ----------------------------------------------------------------------------------------------

    def _problem(self, flow: str, net: str, *, anew: bool = False) -> Problem:
        """Return what is asked of a flow and a net; `anew` reads the net once more."""
        _check("flow", flow, self._questions)
        _check("net", net, self._nets)
        if anew or (flow, net) not in self._problems:
            where = nets.read(self._nets[net])
            self._problems[flow, net] = self._questions[flow].on(where, {}, self._constraints)
        return self._problems[flow, net]

    def _budget_for(self, objective: str) -> Budget:
        return dataclasses.replace(self._budget, objective=Objective.parse(objective) if objective else None)

    def _by_hand(self, problem: Problem, objective: str, placement: Mapping[str, str]) -> Placement:
        for step in problem.steps:
            if step not in placement:
                raise PlacementError(f"the placement does not say where step '{step}' runs")
        device = np.array([problem.net.device(placement[step]) for step in problem.steps], np.int64)
        goal = Objective.parse(objective) if objective else usual(problem)
        value = goal.value(score(problem, device))
        return Placement(problem, "by hand", goal, "feasible", device, value, bound=0.0, seconds=0.0)

    def _sound(self, problem: Problem, objective: str, placement: Mapping[str, str]) -> Placement:
        """Return a placement by hand that breaks no constraint; PlacementError says which it would break."""
        by_hand = self._by_hand(problem, objective, placement)
        assert by_hand.device is not None
        broken = violations(problem, by_hand.device.tolist())
        if broken:
            raise PlacementError(f"the placement cannot be: {broken[0]}")
        return by_hand


def _account(placement: Placement) -> dict[str, Any]:
    """Account for a placement, with what else is to be known of it by whoever changes it by hand."""
    problem = placement.problem
    pinned = [problem.steps[step] for step in np.flatnonzero(problem.pinned >= 0).tolist()]
    offers = [] if placement.device is None else _offers(problem, placement.device)
    return account(placement, alternatives=False) | {"broken": [], "why": [], "pinned": pinned, "offers": offers}


def _offers(problem: Problem, device: Ints) -> list[dict[str, Any]]:
    """Return the devices that steps run on, or could be moved to by hand, zone by zone."""
    net = problem.net
    others = [int(d) for d in candidates(problem) if int(d) not in set(device.tolist())]
    devices = sorted({*device.tolist(), *others[:_OFFERED]})
    return [
        {
            "device": net.device_name(d),
            "zone": net.zones[int(net.zone_of(d))],
            "class": net.classes[int(net.class_of[d])].name,
            "cloud": bool(net.classes[int(net.class_of[d])].cloud),
        }
        for d in devices
    ]


def _check(what: str, name: str, things: Mapping[str, Any]) -> None:
    if name not in things:
        slip = suggestion(name, things) or f"; there are {listed(things)}"
        raise PlacementError(f"there is no {what} '{name}' to plan with{slip}")
