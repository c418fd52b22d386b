"""MinCarbon: where the electricity is cleanest, as when solar panels give plenty of it."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.deploy.policies.view import View


@dataclass(frozen=True, slots=True)
class MinCarbon:
    """The least carbon intensity, summed over sites that run a step; among equals, the shortest way."""

    name: str = "min-carbon"
    objective: str = "money then critical"

    def counts(self, site: View) -> float | None:
        """Count the grams for a kilowatt-hour that a site tells; one that tells none is not chosen."""
        return site.carbon
