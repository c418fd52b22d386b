"""NearSources: what can run near the sensors does, so that as little as possible goes over the wide area."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.deploy.policies.view import View


@dataclass(frozen=True, slots=True)
class NearSources:
    """The fewest bytes between sites; among equals, the shortest way."""

    name: str = "near-sources"
    objective: str = "wan then critical"

    def counts(self, site: View) -> float | None:
        """Count the price, which does not matter here."""
        return site.price or 0.0
