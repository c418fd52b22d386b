"""Policies: which instance a free worker runs next. One idea per file."""

from __future__ import annotations

from headwater.engine.policy.longest_queue import LongestQueue
from headwater.engine.policy.min_latency import MinLatency
from headwater.engine.policy.min_memory import MinMemory
from headwater.engine.policy.oldest_first import OldestFirst
from headwater.engine.policy.random import Random
from headwater.engine.scheduler import Policy
from headwater.errors import RunError, listed, suggestion

POLICIES: dict[str, type[Policy]] = {
    "longest_queue": LongestQueue,
    "random": Random,
    "min_latency": MinLatency,
    "min_memory": MinMemory,
    "oldest_first": OldestFirst,
}
DEFAULT = "oldest_first"

__all__ = [
    "DEFAULT",
    "POLICIES",
    "LongestQueue",
    "MinLatency",
    "MinMemory",
    "OldestFirst",
    "Policy",
    "Random",
    "policy_named",
]


def policy_named(name: str) -> Policy:
    """Return a policy by its name."""
    if name not in POLICIES:
        raise RunError(f"unknown policy {name!r}; policies are {listed(POLICIES)}{suggestion(name, POLICIES)}")
    return POLICIES[name]()
