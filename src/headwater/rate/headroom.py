"""What may still be promised on a machine, by whom the rest is held, and whether a promise would fit: asked, not taken.

For whoever decides where a flow should run, such as a policy for sites. Nothing is started, reserved or measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.flow.contract import Contract
from headwater.flow.profile import Demand
from headwater.rate.client import board
from headwater.rate.estimate import Nearest, lanes_for, nearest
from headwater.rate.grade import grade_here
from headwater.rate.ledger import LANE, Ledger


@dataclass(frozen=True, slots=True)
class Holder:
    """A flow that cores are held for."""

    flow: str
    contract: Contract
    cores: float
    used: float  #: of late
    kept: int  #: windows
    broken: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a promise would fit, and what it would take."""

    fits: bool
    cores: float  #: wanted, by the estimate
    lanes: int  #: processes that would share them
    left: float
    holders: tuple[Holder, ...]
    nearest: Nearest  #: the rate, or the latency, that would fit where this does not

    @property
    def lacks(self) -> float:
        """Cores that are wanted and not left."""
        return max(0.0, self.cores - self.left)


@dataclass(frozen=True, slots=True)
class Room:
    """The cores of a machine: in all, those that may be promised, and those that still may."""

    cores: float
    capacity: float
    left: float
    grade: str
    holders: tuple[Holder, ...] = ()

    @property
    def promised(self) -> float:
        """Cores that are held."""
        return sum(each.cores for each in self.holders)

    def would_fit(self, demand: Demand, contract: Contract, lanes: int = 1) -> Answer:
        """Say whether a promise would be given by the estimate, in so many lanes at most; a trial may still refuse it.

        `demand` is what a profile has that was made with `--contract`, on a machine like this one.
        """
        count, needed = lanes_for(demand, contract, lanes)
        fits = needed <= min(self.left, LANE * count)
        return Answer(fits, needed, count, self.left, self.holders, nearest(demand, contract, self.left, lanes))


def room(home: Path | None = None) -> Room:
    """Return what may be promised here; all of it, where no supervisor runs."""
    current = board(home)
    if current is None:
        grade = grade_here()
        ledger = Ledger(grade.cores)
        return Room(ledger.cores, ledger.capacity, ledger.left, grade.name)
    holders = tuple(
        Holder(each.flow, each.contract, each.cores, each.used, each.kept, each.broken) for each in current.lanes
    )
    return Room(current.cores, current.capacity, current.left, current.grade, holders)
