"""Fixed: steps stay where the plan has them, whatever happens; people move them."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.deploy.policies.view import View


@dataclass(frozen=True, slots=True)
class Fixed:
    """Decides nothing."""

    name: str = "fixed"
    objective: str = ""

    def counts(self, site: View) -> float | None:
        """Count no site's hours."""
        return 0.0
