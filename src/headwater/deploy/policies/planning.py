"""A deployed flow and its sites as a problem of `place`: one device for each site, as the sites are now."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property

import msgspec
import numpy as np

from headwater.deploy.engine_only import engine_only
from headwater.deploy.policies.policy import Policy
from headwater.deploy.policies.policy_state import PlanningInput
from headwater.deploy.policies.view import View
from headwater.deploy.promise import cores_of_steps, part_cores
from headwater.deploy.site.promise_on_spark import ELSEWHERE
from headwater.errors import PlacementError
from headwater.flow.contract import Contract
from headwater.flow.flow import Flow
from headwater.net.device import DeviceClass
from headwater.net.net import Net
from headwater.net.table import net_from_table
from headwater.place import Budget, Constraints, Objective, best, constrain
from headwater.place.constraint_table import CPU, LIMITS, used_in_all
from headwater.place.from_flow import problem_of
from headwater.place.placement import Placement, judge
from headwater.place.problem import DeviceUse, Problem
from headwater.place.repair import repair
from headwater.rate.micro_batches import why_not

_TIME_S = 0.5  #: to search; whole flows take none of it
_BUSY = 0.9  #: the most of a site that others are taken to have: some of it is left for whoever comes
#: of a site that does not say what a policy counts, and so is not chosen
_UNTOLD = {"min-carbon": "tells no carbon intensity (--carbon)", "min-cost": "tells no price (--price)"}


class Planner:
    """Plans one flow, again and again."""

    def __init__(
        self,
        flow: Flow,
        planning_input: PlanningInput,
        contract: Contract | None,
        policy: Policy,
        *,
        best_effort: bool = False,
    ) -> None:
        self._flow, self._input, self._contract, self._policy = flow, planning_input, contract, policy
        self._best_effort = best_effort  #: whether it is promised also where nothing can be reserved
        self.rates_hz: Mapping[str, float] = {}  #: of sources, as measured; others bring what was asked for
        self._goal = Objective.parse(policy.objective)
        self._budget = Budget(time_s=_TIME_S, objective=self._goal)

    @cached_property
    def net(self) -> Net:
        """The net that the flow was deployed on."""
        return net_from_table(msgspec.json.decode(self._input.net), "net")

    def price(self, site: str) -> float:
        """Return what the net says that a site costs an hour: its dearest device."""
        kinds = self._classes(self.net.zone(site))
        return max(kind.price_per_hour for kind in kinds)

    @property
    def places(self) -> list[str]:
        """Return the sites at which steps must be, wherever the others are."""
        standing = dict(self.net.sensors)
        at = [self.net.zones[int(self.net.zone_of(standing[name]))] for name in self._flow.steps if name in standing]
        return list(dict.fromkeys([*at, *(self._zone(place) for place in self._input.pins.values())]))

    def anew(self, views: Mapping[str, View]) -> dict[str, str]:
        """Return where each step should be, of a flow that is nowhere yet; PlacementError says why it can be nowhere."""
        problem = self._problem(views, dict(self._input.pins), {}, {})
        placement = best.solve(problem, self._budget)
        if placement.device is None:
            raise PlacementError(self.no_site_admits(views, placement.reason))
        return placement.by_name

    def look(self, views: Mapping[str, View], sites: Mapping[str, str], stay: list[str]) -> Look:
        """Return how good it is as it is, and what would be better; `stay` are steps that nobody can move."""
        pins = {**self._input.pins, **{step: sites[step] for step in stay}}
        problem = self._problem(views, pins, sites, self.rates_hz)
        before = np.array([problem.net.device(sites[step]) for step in problem.steps], np.int64)
        now = judge(problem, "now", before, self._budget, 0.0)
        if now.device is None and self.rates_hz:
            # it brings what was measured where it is: where a profile says that this cannot be, the rate says nothing
            nominal = self._problem(views, pins, sites, {})
            as_nominal = judge(nominal, "now", before, self._budget, 0.0)
            problem, now = (problem, now) if as_nominal.device is None else (nominal, as_nominal)
        if now.device is not None:
            return Look(now, _with_fewest_moves(best.solve(problem, self._budget), before, self._budget), before)
        then = repair(problem, before, self._budget)
        if self._contract is None:  # without a promise, what is taken is others' load and nothing else
            alone = judge(dataclasses.replace(problem, taken={}), "now", before, self._budget, 0.0)
            if alone.device is not None:
                return Look(alone, then, before, crowded=now.reason)
        return Look(now, then, before)

    def no_site_admits(self, views: Mapping[str, View], why: str) -> str:
        """Say with numbers why no site takes the flow."""
        needed, whole = "", 0.0
        if self._contract is not None and self._input.profile.demand is not None:
            whole = sum(cores_of_steps(self._contract, self._input.profile.demand).values())
            whole += part_cores(self._contract, self._input.profile.demand)
            needed = (
                f" It is promised {self._contract}, which takes {whole:.2f} cores in all where it was measured "
                f"({self._input.measured_ips:.3g} instructions/s)."
            )
        rooms = [f"'{view.name}' {self._room(view, whole * self._slower(view))}" for view in views.values()]
        reason = f" ({why})" if why else ""
        return f"no site admits flow '{self._flow.name}'{reason}.{needed} Sites: {'; '.join(rooms)}"

    def _room(self, view: View, takes: float) -> str:
        """Say how much of the flow would find a place at a site, or why none of it does."""
        if not view.here:
            return "is away"
        if view.why or view.closed:
            return view.why or view.closed
        if why := self._why_unpromised(view):
            return why
        if self._policy.counts(view) is None:
            return _UNTOLD[self._policy.name]
        whole = " whole" if view.kind == "spark" else ""
        room = f"has {view.free:.2f}{whole} cores to promise" + (f", where it takes {takes:.2f}" if takes else "")
        return f"{room}, and others take {100 * view.load:.0f} % of it more than of the idlest"

    # -- the problem ------------------------------------------------------------------------------------------------------

    def _problem(
        self, views: Mapping[str, View], pins: dict[str, str], sites: Mapping[str, str], rates_hz: Mapping[str, float]
    ) -> Problem:
        net = self._net_of(views)
        limits = Constraints(
            pins={step: self._zone(at) for step, at in pins.items()},
            keep=self._input.keep,
            anonymise=frozenset(self._input.anonymise),
        )
        nominal_hz, speed, every = self._input.rates_hz, self._input.measured_ips, self._input.every
        sources = [step.name for step in self._flow.steps.values() if step.is_source]
        rates = nominal_hz
        if rates_hz:
            rates = {**(nominal_hz if isinstance(nominal_hz, dict) else dict.fromkeys(sources, nominal_hz)), **rates_hz}
        problem = problem_of(self._flow, net, self._input.profile, rates, measured_ips=speed, every=every)
        problem = constrain(problem, limits)
        unplaced = [problem.steps[i] for i in problem.sources if problem.pinned[i] < 0]
        if unplaced:
            raise PlacementError(
                f"source '{unplaced[0]}' has no place: say at which site its records come in, with --pin "
                f"{unplaced[0]}=SITE, or with sensors in the net"
            )
        if self._input.whole:
            free = tuple(np.flatnonzero(problem.pinned < 0).tolist())
            problem = dataclasses.replace(
                problem, together=(*problem.together, free) if len(free) > 1 else problem.together
            )
        return self._with_room(self._with_choice(problem, views, sites), views)

    def _with_choice(self, problem: Problem, views: Mapping[str, View], sites: Mapping[str, str]) -> Problem:
        """Leave steps that can move only sites that are here, that nobody drains, that say what they count, and run them."""
        zones = problem.net.zones
        ones = np.ones((len(problem.steps), len(zones)), bool)
        allowed = ones if problem.zone_allowed is None else problem.zone_allowed.copy()
        free = problem.pinned < 0
        for number, name in enumerate(zones):
            view = views[name]
            if not view.here or view.why or self._why_unpromised(view) or self._policy.counts(view) is None:
                allowed[free, number] = False
                continue
            if view.closed:
                allowed[free & np.array([sites.get(step) != name for step in problem.steps]), number] = False
            if view.kind == "spark":
                allowed[free & self._not_on_spark(problem), number] = False
        return dataclasses.replace(problem, zone_allowed=allowed)

    def _not_on_spark(self, problem: Problem) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which steps cannot be where Spark runs them."""
        steps = engine_only(self._flow)
        return np.array([step in steps for step in problem.steps])

    def _why_unpromised(self, view: View) -> str:
        """Say why nothing at a site can be promised what the flow is, however many cores there are; nothing where it can."""
        if self._contract is None or view.kind != "spark":
            return ""
        if not view.reserves and not self._best_effort:
            return f"runs its parts on Spark, and {ELSEWHERE}"
        why = why_not(self._contract)
        return why and f"runs its parts on Spark: {why}"

    def _with_room(self, problem: Problem, views: Mapping[str, View]) -> Problem:
        """Let each site have as much room as its ledger has, or, without a promise, as others' load leaves."""
        zones, demand = problem.net.zones, self._input.profile.demand
        if self._contract is None or demand is None:
            use = {number: DeviceUse(utilisation=min(_BUSY, views[name].load)) for number, name in enumerate(zones)}
            return dataclasses.replace(problem, taken=use)
        needed, own = cores_of_steps(self._contract, demand), part_cores(self._contract, demand)
        slower = np.array([self._slower(views[name]) for name in zones])
        free = np.array([max(views[name].free, 1e-9) for name in zones])
        service, overhead = problem.service_s.copy(), problem.overhead_s.copy()
        for i, step in enumerate(problem.steps):
            if step in needed and problem.rate_hz[i] > 0 and i not in problem.sources:
                service[i], overhead[i] = needed[step] * slower / free / problem.rate_hz[i], 0.0
        room = {
            number: DeviceUse(utilisation=float(own * slower[number] / free[number])) for number in range(len(zones))
        }
        return dataclasses.replace(problem, service_s=service, overhead_s=overhead, taken=room)

    def _net_of(self, views: Mapping[str, View]) -> Net:
        """Return the net with one device for each site, which counts what the policy says."""
        net = self.net
        classes = []
        for number, name in enumerate(net.zones):
            kinds = self._classes(number)
            fastest = max(kinds, key=lambda kind: kind.cpu_ips)
            hour = self._policy.counts(views[name])
            classes.append(
                dataclasses.replace(
                    fastest,
                    name=name,
                    price_per_hour=0.0 if hour is None else hour,
                    memory_bytes=sum(kind.memory_bytes for kind in kinds),
                    egress_per_gb=fastest.egress_per_gb if self._policy.name == "min-cost" else 0.0,
                )
            )
        count = len(net.zones)
        lan = [min(float(net.lan_s[d]) for d in net.devices_of(number)) for number in range(count)]
        sensors = tuple((source, int(net.zone_of(device))) for source, device in net.sensors)
        return dataclasses.replace(
            net,
            classes=tuple(classes),
            first=np.arange(count + 1, dtype=np.int64),
            class_of=np.arange(count, dtype=np.uint16),
            lan_s=np.array(lan),
            names=None,
            sensors=sensors,
        )

    def _classes(self, zone: int) -> list[DeviceClass]:
        net = self.net
        classes = [net.classes[int(net.class_of[device])] for device in net.devices_of(zone)]
        if not classes:
            raise PlacementError(
                f"site '{net.zones[zone]}' of net '{net.name}' has no device, so nothing can run there"
            )
        return classes

    def _slower(self, view: View) -> float:
        """Return how many times as long a step takes on a core of a site, its fastest device's, as where it was measured."""
        kinds = self._classes(self.net.zone(view.name))
        return self._input.measured_ips / (view.core_ips or max(kind.cpu_ips for kind in kinds))

    def _zone(self, at: str) -> str:
        """Return the site that is meant: by its own name, or by that of one of its devices."""
        net = self.net
        return at if at in net.zones else net.zones[int(net.zone_of(net.device(at)))]


@dataclasses.dataclass(frozen=True)
class Look:
    """A flow as it is, and as it would be better."""

    now: Placement
    then: Placement
    before: np.ndarray[tuple[int], np.dtype[np.int64]]
    crowded: str = ""  #: where it would do well as it is, but for the load of others: what it is short of

    @property
    def must_move(self) -> bool:
        """Whether it cannot stay as it is."""
        return self.now.device is None

    @property
    def moves(self) -> dict[str, tuple[str, str]]:
        """Step → (from, to) of those that would move."""
        if self.then.device is None:
            return {}
        net, steps = self.then.problem.net, self.then.problem.steps
        pairs = zip(steps, self.before.tolist(), self.then.device.tolist(), strict=True)
        return {step: (net.zones[a], net.zones[b]) for step, a, b in pairs if a != b}

    @property
    def gain(self) -> float:
        """The share of what counts that moving would save; where others crowd it out, of how busy its busiest site is."""
        if self.now.device is None or self.then.device is None:
            return 0.0
        if self.crowded:
            was, would_be = self._busiest
            return (was - would_be) / was
        if not self.now.value > 0:
            return 0.0
        return (self.now.value - self.then.value) / self.now.value

    @property
    def expects(self) -> dict[str, tuple[float | None, float | None]]:
        """What is minimised, and the state that would travel, as they are and as they would be."""
        goal = self.then.objective
        names = dict.fromkeys(measure for level in goal.levels for measure, _ in level)
        scores = [None if each.device is None else each.score for each in (self.now, self.then)]
        pairs = {name: tuple(None if one is None else _finite(one.measure(name)) for one in scores) for name in names}
        problem = self.then.problem
        state = sum(float(problem.memory_bytes[problem.step(step)]) for step in self.moves)
        busiest = {"busiest": self._busiest} if self.crowded and self.then.device is not None else {}
        return {**pairs, **busiest, "state_bytes": (0.0, state)}  # type: ignore[dict-item]  # mypy takes pairs for any tuple

    @property
    def _busiest(self) -> tuple[float, float]:
        """How busy the busiest site is with others' load, as it is and as it would be."""
        assert self.then.device is not None
        was, would_be = (
            float(used_in_all(self.then.problem, at)[1][LIMITS.index(CPU)].max())
            for at in (self.before, self.then.device)
        )
        return was, would_be


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _with_fewest_moves(
    placement: Placement, before: np.ndarray[tuple[int], np.dtype[np.int64]], budget: Budget
) -> Placement:
    """Put back what gains nothing by being elsewhere."""
    if placement.device is None:
        return placement
    for step in np.flatnonzero(placement.device != before).tolist():
        assert placement.device is not None
        back = placement.device.copy()
        back[step] = before[step]
        tried = judge(placement.problem, placement.strategy, back, budget, placement.seconds)
        if tried.device is not None and _worth(tried) <= _worth(placement):
            placement = tried
    return placement


def _worth(placement: Placement) -> tuple[float, ...]:
    return tuple(round(value, 12) for value in placement.objective.values(placement.score))
