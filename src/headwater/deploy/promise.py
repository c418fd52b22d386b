"""What a promise takes at each site: of a flow's contract and its measured demand, the share of one part."""

from __future__ import annotations

from dataclasses import replace

from headwater.deploy.cut import Cut
from headwater.deploy.part import Promise
from headwater.deploy.policies.policy_state import PolicyState
from headwater.flow.contract import Contract
from headwater.flow.flow import DEAD_LETTERS
from headwater.flow.profile import Demand, Profile, StepDemand
from headwater.rate.estimate import KAPPA, at_tick, busy, tick_of

#: what one end of a bridge takes, by record and by tick: about what a bridge does in a second (docs/sites.md)
_END = StepDemand(scale=1.0, batch=1, cores=1.0, limit_s=0.0, record_s=1e-6, tick_s=2e-4)


def cores_of_steps(contract: Contract, demand: Demand) -> dict[str, float]:
    """Return the cores that a contract takes, by step; the engine's own are for each part, see `part_cores`."""
    tick_s = tick_of(contract)
    steps = at_tick(demand, tick_s).steps
    return {name: KAPPA * busy(step, contract.rate_hz, tick_s) for name, step in steps.items()}


def engine_cores(contract: Contract, demand: Demand) -> float:
    """Return the cores that the engine takes for itself in each part."""
    tick_s = tick_of(contract)
    return KAPPA * at_tick(demand, tick_s).engine_s / tick_s


def part_cores(contract: Contract, demand: Demand) -> float:
    """Return the cores that a part takes before any of its steps does: the engine's own, and those of two bridges."""
    return engine_cores(contract, demand) + 2 * KAPPA * busy(_END, contract.rate_hz, tick_of(contract))


def promise_of(cut: Cut, site: str, contract: Contract, profile: Profile, *, best_effort: bool = False) -> Promise:
    """Return what a site must promise so that the flow is.

    The rate of a part is that of what comes into it: of its sources, and of streams from other sites.
    """
    demand = profile.demand
    assert demand is not None
    steps = {name: demand.steps[name] for name, at in cut.site_of.items() if at == site and name in demand.steps}
    coming = sum(step.scale for name, step in steps.items() if cut.flow.steps[name].is_source)
    ends: dict[str, StepDemand] = {}
    for crossing in cut.crossings:
        if site in (crossing.origin, crossing.target) and crossing.step != DEAD_LETTERS:
            scale = demand.steps[crossing.step].scale * profile.of(crossing.step).selectivity.get(crossing.port, 1.0)
            ends[crossing.inlet if crossing.target == site else crossing.outlet] = replace(_END, scale=scale)
            coming += scale if crossing.target == site else 0.0
    share = coming or 1.0
    part_steps = {name: replace(step, scale=step.scale / share) for name, step in {**steps, **ends}.items()}
    own = replace(contract, rate_hz=contract.rate_hz * share, burst=contract.burst_records * share)
    part = replace(demand, rate_hz=demand.rate_hz * share, steps=part_steps)
    cores = sum(cores_of_steps(own, part).values()) + engine_cores(own, part)
    part_profile = replace(profile, steps={}, demand=part)
    return Promise(contract=own, profile=part_profile, cores=cores, best_effort=best_effort)


def promises_of(cut: Cut, policed: PolicyState) -> dict[str, Promise]:
    """Return what each site must promise; nothing of a flow without a contract."""
    contract, profile = policed.contract, policed.asked.profile
    if contract is None:
        return {}
    return {site: promise_of(cut, site, contract, profile, best_effort=policed.best_effort) for site in cut.sites}
