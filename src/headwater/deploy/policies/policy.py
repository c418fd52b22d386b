"""What tells policies apart; all else, when to move and when to wait, they share."""

from __future__ import annotations

from typing import Protocol

from headwater.deploy.policies.view import View


class Policy(Protocol):
    """Says what a placement is worth; a plain value, so that a plan depends on nothing else."""

    @property
    def name(self) -> str:
        """As the command line has it."""

    @property
    def objective(self) -> str:
        """What is minimised, in the words of `place`; nothing for a policy that leaves all as it is."""

    def counts(self, site: View) -> float | None:
        """Return what an hour at a site counts as money; None where the site does not say, and so cannot be chosen."""
