"""What a command line submits to be deployed: a plan, or a flow and a net with a policy that chooses the sites."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater import net as nets
from headwater.cli.locate import find_flow
from headwater.cli.question import measured_speed, pairs
from headwater.cli.rewire import rewire
from headwater.cli.screen import progress
from headwater.deploy.bundle import sources_of
from headwater.deploy.chart import Chart
from headwater.deploy.coordinator.state import Deployment
from headwater.deploy.cut import Cut
from headwater.deploy.engine_only import engine_only
from headwater.deploy.policies import policy_named
from headwater.deploy.policies.planning import Planner
from headwater.deploy.policies.policy_state import PlanningInput, PolicyState
from headwater.deploy.policies.view import View
from headwater.deploy.promise import promises_of
from headwater.errors import PlacementError, RunError
from headwater.flow.contract import Contract, rate_hz
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.net.files import as_json
from headwater.net.net import Net
from headwater.place.plan import RATE_HZ, Plan

_FIXED = "fixed"
PLANS = (".json", ".toml")  #: what the files of plans end in
EVERY = "250 ms"  #: where neither a command nor a plan says how often checkpoints are made


@dataclass(frozen=True)
class Terms:
    """What is wished of a policy and of a promise."""

    policy: str = _FIXED
    profile: Path | None = None
    measured_on: str | None = None
    pin: list[str] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    whole: bool = False
    promise: str | None = None
    best_effort: bool = False
    settle_s: float = 5.0
    rest_s: float = 60.0


class Submission:
    """A flow to be deployed; where its steps go is known, or the policy's choice once sites are there."""

    def __init__(self, flow: Flow, reference: str, net: Net, options: dict[str, Any]) -> None:
        self.flow, self._reference, self.net = flow, reference, net
        self.every: str = options["every"] or EVERY
        self._options = {**options, "every": self.every}
        self.sites: dict[str, str] | None = None
        self.policed: PolicyState | None = None

    @property
    def planner(self) -> Planner:
        """Who chooses the sites."""
        assert self.policed is not None
        policed = self.policed
        policy = policy_named(policed.name)
        return Planner(self.flow, policed.asked, policed.contract, policy, best_effort=policed.best_effort)

    @property
    def places(self) -> list[str]:
        """Return the sites without which nothing can be chosen: those of sources, and of steps that are pinned."""
        return self.planner.places

    def choose(self, views: dict[str, View]) -> None:
        """Have the policy choose among sites; PlacementError says why none will do."""
        self.sites = self.planner.anew(views)

    def deployment(self) -> Deployment:
        """Return what is to be deployed; before sites are chosen, all that is known of it."""
        reference, files = self._reference, dict[str, bytes]()
        head, colon, name = reference.rpartition(":")
        file = Path(head or reference)
        if file.suffix == ".py":
            reference, files = f"{file.name}{colon}{name}" if head else file.name, sources_of(file)
        deployment = Deployment(
            id=f"{re.sub('[^a-z0-9]+', '-', self.flow.name.lower()).strip('-') or 'flow'}-{secrets.token_hex(3)}-0",
            name=self.flow.name,
            flow=reference,
            known=list(self.net.zones),
            sites=self.sites or {},
            files=files,
            policed=self.policed,
            chart=Chart.of(self.net),
            **self._options,
        )
        if self.sites is not None:
            cut = Cut(self.flow, self.sites)
            deployment.sites = dict(cut.site_of)
            deployment.joined, deployment.streams = cut.joined, cut.streams
            deployment.promises = {} if self.policed is None else promises_of(cut, self.policed)
            deployment.engine_only = engine_only(self.flow)
        return deployment


def submission(what: str, net: Path | None, options: dict[str, Any], terms: Terms) -> Submission:
    """Return what is to be deployed, read and checked; `options` are inputs, output, rate and every."""
    policy_named(terms.policy)
    if Path(what).suffix in PLANS:
        if net is not None:
            raise PlacementError(
                f"a plan names its own net; got '{what}' and '{net}'. Give a plan, or a flow and a net"
            )
        return _of_plan(Plan.load(what), options, terms)
    if net is None or terms.policy == _FIXED:
        raise PlacementError(
            f"headwater deploy takes a plan, a .json or .toml file, or a flow with a net and a policy; got '{what}'. For a "
            "flow, make one first: headwater plan FLOW NET --output plan.json; or let a policy choose: headwater deploy "
            "FLOW NET --policy min-cost"
        )
    return _of_flow(what, net, options, terms)


def _rewire(flow: Flow, options: dict[str, Any]) -> Flow:
    return rewire(flow, inputs=options["inputs"], rate=options["rate"], may_come=True, loop=False)


def _of_plan(plan: Plan, options: dict[str, Any], terms: Terms) -> Submission:
    net, own = nets.read(Path(plan.net)), find_flow(plan.flow)
    flow = _rewire(own, options)
    result = Submission(flow, plan.flow, net, {**options, "every": options["every"] or plan.every})
    result.sites = dict(Cut.of(plan, flow, net).site_of)
    contract = _contract(own, terms) or plan.contract
    if terms.policy != _FIXED or contract is not None:
        profile = plan.figures() if terms.profile is None else Profile.load(terms.profile)
        rates = plan.rates_hz if isinstance(plan.rates_hz, float | int) else dict(plan.rates_hz)
        result.policed = _policy_state(own, net, profile, rates, contract, terms, result.every, plan.measured_ips)
    return result


def _of_flow(what: str, net_file: Path, options: dict[str, Any], terms: Terms) -> Submission:
    net, own = nets.read(net_file), find_flow(what)
    result = Submission(_rewire(own, options), what, net, options)
    contract = _contract(own, terms)
    profile = None if terms.profile is None else Profile.load(terms.profile)
    sources = sum(step.is_source for step in own.steps.values())
    rate = contract.rate_hz / sources if contract is not None else options["rate"] or RATE_HZ
    result.policed = _policy_state(result.flow, net, profile, rate, contract, terms, result.every)
    return result


def _contract(flow: Flow, terms: Terms) -> Contract | None:
    if terms.promise is None:
        return flow.promised
    return Contract(rate_hz(terms.promise), None if flow.promised is None else flow.promised.latency_s)


def _policy_state(
    flow: Flow,
    net: Net,
    profile: Profile | None,
    rates_hz: float | dict[str, float],
    contract: Contract | None,
    terms: Terms,
    every: str,
    measured_ips: float | None = None,
) -> PolicyState:
    if contract is not None and (profile is None or profile.demand is None):
        profile = _measure_demand(flow, contract)
    elif profile is None:
        from headwater.engine.profiler import profile as measure

        with progress(f"measuring {flow.name}"):
            profile = measure(flow, records=20_000)
    ips = measured_ips or measured_speed(terms.measured_on, profile, net)
    if ips is None:
        ips = next(kind.cpu_ips for kind in net.classes if kind.name == profile.device)
    planning_input = PlanningInput(
        net=as_json(net),
        profile=profile,
        rates_hz=rates_hz,
        measured_ips=ips,
        pins=pairs("--pin", terms.pin),
        keep=pairs("--keep", terms.keep),
        every=every,
        whole=terms.whole,
    )
    return PolicyState(
        name=terms.policy,
        asked=planning_input,
        contract=contract,
        best_effort=terms.best_effort,
        settle_s=terms.settle_s,
        rest_s=terms.rest_s,
    )


def _measure_demand(flow: Flow, contract: Contract) -> Profile:
    from headwater.rate import demanding
    from headwater.rate.admission import read_once

    once = read_once(flow)
    if once:
        raise RunError(
            f"flow '{flow.name}' asks for {contract}, and what '{once}' sends would be lost by measuring with it; make a "
            "profile of records in a file (headwater profile FLOW --contract --input FILE --output P) and give --profile P"
        )
    with progress(f"measuring what {contract} takes"):
        return demanding(flow, contract, records=2000, point_s=0.5)
