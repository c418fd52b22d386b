"""MinLatency: the shortest slowest path from a source to a sink."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.deploy.policies.view import View


@dataclass(frozen=True, slots=True)
class MinLatency:
    """The least latency of the slowest path; among equals, the cheapest."""

    name: str = "min-latency"
    objective: str = "critical then money"

    def counts(self, site: View) -> float | None:
        """Count the price, which breaks ties; a site without one is taken for free."""
        return site.price or 0.0
