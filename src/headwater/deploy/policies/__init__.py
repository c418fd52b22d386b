"""Policies: where the steps of a deployed flow should be, as sites come and go, and prices, loads and ledgers change.

policy      what tells policies apart: the objective that they plan with, and what an hour at a site counts
min_cost, min_carbon, min_latency, near_sources, fixed    one each
policy_state what a policy plans with, and what it has decided so far: kept with the deployment
view        a site as a policy sees it
planning    a flow and sites as a problem of `place`; its answer as sites again
telling     decisions in words
deciding    whether to move now: reasons that hold, gains that are worth it, rests in between
"""

from __future__ import annotations

from headwater.deploy.policies.fixed import Fixed
from headwater.deploy.policies.min_carbon import MinCarbon
from headwater.deploy.policies.min_cost import MinCost
from headwater.deploy.policies.min_latency import MinLatency
from headwater.deploy.policies.near_sources import NearSources
from headwater.deploy.policies.policy import Policy
from headwater.errors import RunError, listed, suggestion

POLICIES: dict[str, Policy] = {
    each.name: each for each in (Fixed(), MinCost(), MinCarbon(), MinLatency(), NearSources())
}
"""All there are, by name."""

__all__ = ["POLICIES", "Policy", "policy_named"]


def policy_named(name: str) -> Policy:
    """Return a policy; RunError says which there are."""
    if name not in POLICIES:
        raise RunError(f"there is no policy '{name}'; policies are {listed(POLICIES)}{suggestion(name, POLICIES)}")
    return POLICIES[name]
