"""All strategies by name; a solver's module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from headwater.errors import PlacementError, listed, suggestion
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


class Solver(Protocol):
    """Finds a placement within a budget."""

    def __call__(self, problem: Problem, budget: Budget | None = None) -> Placement:
        """Return the placement, or one that says why there is none."""


MODULES = {
    "cloud-only": "cloud_only",
    "tcep": "tcep",
    "tcep-original": "tcep_original",
    "r-storm": "r_storm",
    "aels": "aels",
    "aels-rp": "aels_rp",
    "aels-rp-la": "aels_rp_la",
    "min-cost": "min_cost",
    "brute-force": "brute",
    "genetic": "genetic",
    "random": "random_search",
    "anneal": "anneal",
    "exact": "exact",
    "best": "best",
}


def strategy(name: str) -> Solver:
    """The strategy called `name`."""
    if name not in MODULES:
        slip = suggestion(name, MODULES) or f"; known: {listed(MODULES)}"
        raise PlacementError(f"there is no strategy '{name}'{slip}")
    solver: Solver = import_module(f"headwater.place.{MODULES[name]}").solve
    return solver
