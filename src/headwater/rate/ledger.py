"""The ledger of a machine: which promises hold how many of its cores. Pure; the supervisor keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headwater.flow.contract import Contract
from headwater.rate.messages import Findings

PROMISED = 0.9
"""The share of all cores that may be promised; the rest is the system's."""

LANE = 0.8
"""The share of one core that one lane may reserve: it has one worker."""

CLOSED = "the supervisor of this machine takes no orders from this user"
OPENS = "root opens it to a group of users with headwater supervisor --group GROUP"


@dataclass(frozen=True, slots=True)
class Keeper:
    """The process that starts a lane again which has died, and what the next one need not find out again."""

    pid: int
    began: int
    found: Findings
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Cores held for one flow, as long as its process lives, or who starts it again."""

    id: str
    flow: str
    contract: Contract
    cores: float
    pid: int
    began: int  #: when the process began, in ticks since boot: tells it from a later one of the same number
    uid: int = 0  #: whose it is
    lanes: int = 1  #: processes that share the cores; 0 for an application of its own, such as of Spark
    keeper: Keeper | None = None

    @property
    def processes(self) -> int:
        """How many want a core at most, each: its lanes, or what an application has a thread for on each of its cores."""
        return self.lanes or math.ceil(self.cores)

    @property
    def most(self) -> float:
        """Cores that so many lanes may have."""
        return LANE * self.lanes if self.lanes else math.inf


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why cores cannot be had."""

    required: float
    left: float
    holders: tuple[tuple[str, float], ...] = ()
    #: "machine", "lane" where it is more than its lanes may have, "unprotected", "closed", "unwritten"
    why: str = "machine"
    error: str = ""  #: by the system, of a ledger that cannot be written

    def __str__(self) -> str:
        holders = ", ".join(f"{flow} {cores:.2f}" for flow, cores in self.holders) or "nobody"
        if self.why == "lane":
            return f"it wants {self.required:.2f} cores, and {_lanes(self.left)} may have {self.left:.2f}"
        if self.why == "unprotected":
            return (
                f"it wants {self.required:.2f} cores, and nothing here can reserve any: beside what runs now it would get "
                f"about {self.left:.2f}"
            )
        if self.why == "closed":
            return CLOSED
        if self.why == "unwritten":
            return f"the ledger of this machine cannot be written: {self.error}"
        return f"it wants {self.required:.2f} cores, and {self.left:.2f} are left; held by {holders}"


def _lanes(cores: float) -> str:
    count = round(cores / LANE)
    return "one lane" if count == 1 else f"{count} lanes"


class Ledger:
    """Grants cores while there are any, and never more."""

    def __init__(self, cores: float, reservations: Iterable[Reservation] = ()) -> None:
        self.cores = cores
        self.reservations = {each.id: each for each in reservations}

    @property
    def capacity(self) -> float:
        """Cores that may be promised in all."""
        return PROMISED * self.cores

    @property
    def left(self) -> float:
        """Cores that may still be promised."""
        return max(0.0, self.capacity - sum(each.cores for each in self.reservations.values()))

    def refusal(self, reservation: Reservation) -> Refusal | None:
        """Say why cores cannot be held, in place of what is held under the same name; None where they can."""
        others = {name: each for name, each in self.reservations.items() if name != reservation.id}
        room = max(0.0, self.capacity - sum(each.cores for each in others.values()))
        if (
            reservation.cores > reservation.most <= room
        ):  # else what is left is the tighter bound, and what would fit hangs on that
            return Refusal(reservation.cores, reservation.most, why="lane")
        if reservation.cores > room:
            holders = tuple((each.flow, each.cores) for each in others.values())
            return Refusal(reservation.cores, room, holders)
        return None

    def ask(self, reservation: Reservation) -> Refusal | None:
        """Hold cores, or say why not; asked again under the same name, in place of what was held."""
        refusal = self.refusal(reservation)
        if refusal is None:
            self.reservations[reservation.id] = reservation
        return refusal

    def settle(self, name: str, cores: float) -> Refusal | None:
        """Hold as many cores as a trial has shown to be needed; if they cannot be had, none are held any more."""
        if name not in self.reservations:
            return Refusal(cores, self.left)
        refusal = self.ask(replace(self.reservations[name], cores=cores))
        if refusal is not None:
            self.free(name)
        return refusal

    def free(self, name: str) -> None:
        """Hold nothing under this name."""
        self.reservations.pop(name, None)

    def sweep(self, lives: Callable[[Reservation], bool]) -> list[Reservation]:
        """Free what is held for processes that are gone, and return it."""
        dead = [each for each in self.reservations.values() if not lives(each)]
        for each in dead:
            self.free(each.id)
        return dead
