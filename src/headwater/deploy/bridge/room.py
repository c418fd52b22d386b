"""How much a sender may keep for a site that does not take it, and what happens then."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.io.log import Bounds
from headwater.io.log.bounds import WhenFull


@dataclass(frozen=True, slots=True)
class Room:
    """How much a sender may keep for a site that does not take it, and what happens at that bound.

    `hold` holds the sources that feed it; the others drop what is oldest, or of the least priority, and count it. On disk,
    what has waited for longer than `age_s` is dropped and counted too, whichever of them holds.
    """

    nbytes: int = 10**9
    age_s: float | None = None
    full: WhenFull = "hold"

    @property
    def holds(self) -> bool:
        """Whether sources are held at the bound; else they go on, and something is dropped."""
        return self.full == "hold"

    def bounds(self) -> Bounds:
        """Return the bounds of the log: where sources are held, it takes what was on its way already."""
        return Bounds(None if self.holds else self.nbytes, self.age_s, self.full)
