"""What a command line asks to be placed: flows with their rates and profiles on a net, or a dataflow of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from headwater import net as nets
from headwater.cli.locate import find_flow
from headwater.cli.plugins import problem_reader
from headwater.cli.screen import err, progress
from headwater.errors import FlowError, PlacementError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.contract import rate_hz
from headwater.flow.duration import microseconds_of
from headwater.flow.profile import Profile, StepProfile
from headwater.net.net import Net
from headwater.place import Constraints, Model, Placement, Plan, Problem, constrain
from headwater.place.copies import with_copies
from headwater.place.merge import merge
from headwater.place.plan import RATE_HZ

DESKTOP_IPS = 30e9
"""Instructions per second that a profile's machine is taken to have when nothing else is said."""
_SOME_SPEED = "1"  #: instructions per second, where they do not matter
MODEL = Model.ENGINE.value
"""How time is reckoned when nothing else is said."""
T = TypeVar("T")
Rates = float | dict[str, float]


@dataclass(frozen=True)
class Question:
    """Flows, what they cost and how fast they run; the net is said when it is asked, so that it can be asked of several."""

    flows: tuple[Flow, ...]
    profiles: tuple[Profile, ...]
    rates: Rates
    measured_on: str | None
    model: Model
    every: str | None = None

    def on(
        self,
        net: Net,
        copies: Mapping[str, int] | None = None,
        constraints: Constraints | None = None,
        *,
        places: bool = True,
    ) -> Problem:
        """The problem of placing the flows on a net, together if there are several, with what is wished of it.

        `places` asks that every source has one: it would be put where it is cheapest, sensor and all.
        """
        from headwater.place.from_flow import require_places

        each = [self._one(flow, profile, net) for flow, profile in zip(self.flows, self.profiles, strict=True)]
        problem = with_constraints(merge(each), copies, constraints)
        if places:
            several = len(self.flows) > 1
            require_places(
                problem,
                (
                    f"{f.name}/{s.name}" if several else s.name
                    for f in self.flows
                    for s in f.steps.values()
                    if s.is_source
                ),
            )
        return problem

    def _one(self, flow: Flow, profile: Profile, net: Net) -> Problem:
        from headwater.place.from_flow import problem_of

        rates = _rates_of(flow, self.rates, self.flows)
        ips = measured_speed(self.measured_on, profile, net)
        return problem_of(flow, net, profile, rates, measured_ips=ips, model=self.model, every=self.every)

    def plan(self, placement: Placement, flow: str, net: Path, copies: Mapping[str, int]) -> Plan:
        """The plan of the one flow there is, with references to where it and the net came from."""
        profile, where = self.profiles[0], placement.problem.net
        ips = measured_speed(self.measured_on, profile, where, quiet=True)
        return Plan.of(
            placement,
            flow=flow,
            net=net,
            profile=profile,
            rates_hz=self.rates,
            measured_ips=ips,
            copies=copies,
            every=self.every,
        )


def question_of(
    flows: list[str],
    rate: list[str] | None,
    profiles: list[Path] | None,
    measured_on: str | None,
    model: str,
    every: str | None,
    check: Callable[[Question], object] | None = None,
) -> Question:
    """Find the flows, and measure those that no profile is given for.

    To measure takes a while: `check` is called before that, with the same question of flows of which all steps cost the
    same, and raises what is wrong with it whatever they cost.
    """
    models = [each.value for each in Model]
    if model not in models:
        raise PlacementError(f"there is no model {model!r}; models are {listed(models)}{suggestion(model, models)}")
    if every is not None:
        microseconds_of("--every", every)
    rates = _rates(rate)
    dataflows = tuple(find_flow(name) for name in flows)
    for flow in dataflows:
        _rates_of(flow, rates, dataflows)
    own_profiles = [Profile.load(path) for path in profiles or ()]
    if len(own_profiles) > len(dataflows):
        raise PlacementError(f"a flow has one --profile; got {len(own_profiles)} for {len(dataflows)}")
    if check is not None and any(_profile_for(flow, own_profiles, len(dataflows) > 1) is None for flow in dataflows):
        uniform = tuple(_uniform_profile(flow) for flow in dataflows)
        check(Question(dataflows, uniform, rates, measured_on or _SOME_SPEED, Model(model), every))
    costs = tuple(_profile_for(flow, own_profiles, len(dataflows) > 1) or measure_flow(flow) for flow in dataflows)
    return Question(dataflows, costs, rates, measured_on, Model(model), every)


def bind_plan(
    plan: Plan, rate: list[str] | None, profile: list[Path] | None, measured_on: str | None, every: str | None = None
) -> Placement:
    """The placement that a plan is, its flow and net found; what is given here replaces what the plan says."""
    flow, net = find_flow(plan.flow), nets.read(plan.net)
    if len(profile or ()) > 1:
        raise PlacementError(f"a plan has one flow, and so one --profile; got {len(profile or ())}")
    costs = Profile.load(profile[0]) if profile else plan.figures() or measure_flow(flow)
    ips = plan.measured_ips if measured_on is None and not profile else None
    if every is not None:
        plan = replace(plan, every=every)
    if rate:
        plan = replace(plan, rates_hz=_rates_of(flow, _rates(rate), [flow]))
    return replace(plan, measured_ips=ips or measured_speed(measured_on, costs, net)).bind(flow, net, costs)


def with_constraints(problem: Problem, copies: Mapping[str, int] | None, constraints: Constraints | None) -> Problem:
    """The problem with steps in copies and with constraints, both by the names of a command line."""
    for step, count in (copies or {}).items():
        problem = with_copies(problem, _step_named(step, problem), count)
    return constrain(problem, _with_full_names(constraints, problem)) if constraints else problem


def of_file(path: Path, case: str | None, rate: list[str] | None, resources: str) -> Problem:
    """A dataflow of a file of CEP dataflows, the first if none is named."""
    hz = _rate(rate[0]) if rate else 100.0
    name, others, problem = problem_reader()(path, case, hz, resources)
    if case is None and others:
        err.print(f"placing {name}, the first of {others + 1} dataflows; choose with --case")
    result: Problem = problem
    return result


def _profile_for(flow: Flow, loaded: list[Profile], several: bool) -> Profile | None:
    """The profile given for a flow, of several the one that bears its name."""
    own = [profile for profile in loaded if not several or profile.flow == flow.name]
    return own[0] if own else None


def _uniform_profile(flow: Flow) -> Profile:
    """A profile by which all steps of a flow cost the same, where what they cost does not matter."""
    return Profile(flow.name, "", {step.name: StepProfile(time_s=1.0) for step in flow.in_order()})


def measure_flow(flow: Flow) -> Profile:
    """Measure what the steps of a flow cost, on this machine."""
    from headwater.engine.profiler import profile as measure

    with progress(f"measuring {flow.name}"):
        return measure(flow, records=20_000)


def measured_speed(measured_on: str | None, costs: Profile, net: Net, *, quiet: bool = False) -> float | None:
    """Return the speed of the machine that a profile is of, or a guess that is told; None for a class of the net."""
    classes = {c.name: c.cpu_ips for c in net.classes}
    if measured_on is None:
        if costs.device in classes:
            return None
        if not quiet:
            err.print(
                f"the profile was measured on {costs.device}, which is no class of {net.name}; taking "
                f"{DESKTOP_IPS:.0e} instructions/s (say --measured-on to change that)"
            )
        return DESKTOP_IPS
    return speed_named(measured_on, net)


def speed_named(measured_on: str, net: Net) -> float:
    """Return the speed that `--measured-on` says: that of a class of the net, or a number."""
    classes = {c.name: c.cpu_ips for c in net.classes}
    try:
        speed = classes[measured_on] if measured_on in classes else number("--measured-on", measured_on)
    except PlacementError:
        speed = 0.0
    if not speed:
        raise PlacementError(
            f"--measured-on is a class of net '{net.name}' ({listed(classes)}), or a number above 0; got {measured_on!r}"
            f"{suggestion(measured_on, classes)}"
        )
    return speed


def _rates(texts: list[str] | None) -> Rates:
    if texts and "=" in texts[0]:
        return {name: _rate(text) for name, text in pairs("--rate", texts).items()}
    if texts and len(texts) > 1:
        raise PlacementError(
            f"--rate is one number for all sources, or SOURCE=NUMBER for each; got {' and '.join(texts)}"
        )
    return _rate(texts[0]) if texts else RATE_HZ


def _rate(text: str) -> float:
    try:
        return rate_hz(text) if "/" in text else number("--rate", text)
    except FlowError as error:
        raise PlacementError(f"--rate: {error}") from None


def _rates_of(flow: Flow, rates: Rates, flows: Iterable[Flow]) -> Rates:
    """The rates of one flow's sources, of those given as SOURCE or FLOW/SOURCE; a name that means no source is an error."""
    if not isinstance(rates, Mapping):
        return rates
    sources = {f.name: [s.name for s in f.steps.values() if s.is_source] for f in flows}
    names = [name for f, own in sources.items() for s in own for name in (s, f"{f}/{s}")]
    unknown = next((name for name in rates if name not in names), None)
    if unknown is not None:
        sources_text = listed(s for own in sources.values() for s in own)
        raise PlacementError(
            f"a rate is given for '{unknown}'; the sources are {sources_text}{suggestion(unknown, names)}"
        )
    mine = {s: rates[name] for s in sources[flow.name] for name in (s, f"{flow.name}/{s}") if name in rates}
    for source in sources[flow.name]:
        if source not in mine:
            raise PlacementError(f"source '{source}' has no rate; rates are given for {listed(rates)}")
    return mine


# -- names of steps ---------------------------------------------------------------------------------------------------------


def _step_named(name: str, problem: Problem) -> str:
    """The full name of a step: `flow/step` where several flows are placed, of which the flow may be left out if clear."""
    if name in problem.steps:
        return name
    matches = [step for step in problem.steps if step.endswith(f"/{name}")]
    if len(matches) > 1:
        raise PlacementError(f"several flows have a step '{name}': say which of {listed(matches)}")
    return matches[0] if matches else name  # an unknown one is told by the problem, with what it has


def _with_full_names(constraints: Constraints, problem: Problem) -> Constraints:
    """Constraints with every step by its full name."""

    def full(by_step: Mapping[str, T]) -> dict[str, T]:
        return {_step_named(name, problem): value for name, value in by_step.items()}

    def each(names: Iterable[str]) -> list[str]:
        return [_step_named(name, problem) for name in names]

    return replace(
        constraints,
        pins=full(constraints.pins),
        keep=full(constraints.keep),
        together=tuple(tuple(each(group)) for group in constraints.together),
        anonymise=frozenset(each(constraints.anonymise)),
    )


# -- values of options ------------------------------------------------------------------------------------------------------


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Read NAME=VALUE, any number of them."""
    out: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise PlacementError(f"{option} is written NAME=VALUE; got {text!r}")
        if out.setdefault(name, value) != value:
            raise PlacementError(f"{option} says {name}={out[name]} and {name}={value}; give one of them")
    return out


def whole(option: str, text: str) -> int:
    """Read a whole number."""
    if not text.isdecimal():
        raise PlacementError(f"{option} needs a whole number; got {text!r}")
    return int(text)


def number(option: str, text: str) -> float:
    """Read a number of 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise PlacementError(f"{option} needs a number; got {text!r}") from None
    if not 0 <= value < float("inf"):
        raise PlacementError(f"{option} needs a number of 0 or more; got {text!r}")
    return value
