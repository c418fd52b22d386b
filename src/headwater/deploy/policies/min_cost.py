"""MinCost, after Storm-RTS: the cheapest sites that admit the flow, at every moment."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.deploy.policies.view import View


@dataclass(frozen=True, slots=True)
class MinCost:
    """The least rent of sites that run a step; among equals, the shortest way."""

    name: str = "min-cost"
    objective: str = "money then critical"

    def counts(self, site: View) -> float | None:
        """Count the price that a site tells, or that the net has for it."""
        return site.price
