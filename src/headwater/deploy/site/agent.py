"""What a site does about what it is told: messages in, deeds out; no process, file or socket in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.deploy.control.messages import Fetch, Forget, Install, Message, Want
from headwater.deploy.part import Sealed


@dataclass(frozen=True, slots=True)
class Unpack:
    """Take a part, checked, without starting it."""

    id: str
    sealed: Sealed
    checkpoint: Mapping[str, bytes]
    after: str


@dataclass(frozen=True, slots=True)
class Take:
    """Return the checkpoint of a part that has stopped."""

    id: str


@dataclass(frozen=True, slots=True)
class Locate:
    """Note where other sites are, for the bridges of a part."""

    id: str
    addresses: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Start:
    """Start a part."""

    id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a part, with a checkpoint."""

    id: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Stop a part, and remove what was kept of it."""

    id: str


Deed = Unpack | Take | Locate | Start | Stop | Remove


class Agent:
    """The parts that a site has, and whether each should run; the same word twice changes nothing."""

    def __init__(self, parts: Mapping[str, bool]) -> None:
        self.parts = dict(parts)
        self._addresses: dict[str, Mapping[str, tuple[str, int]]] = {}

    def told(self, message: Message) -> list[Deed]:
        """Return what to do about a message."""
        match message:
            case Install(id, sealed, checkpoint, after) if id not in self.parts:
                return [Unpack(id, sealed, checkpoint, after)]
            case Fetch(id) if self.parts.get(id) is False:
                return [Take(id)]
            case Want(id, running, addresses) if id in self.parts:
                return self._wanted(id, running, addresses)
            case Forget(ids):
                gone = [id for id in ids if id in self.parts]
                for id in gone:
                    del self.parts[id]
                return [Remove(id) for id in gone]
        return []

    def has(self, id: str) -> None:
        """Take note that a part was taken."""
        self.parts[id] = False

    def _wanted(self, id: str, running: bool, addresses: Mapping[str, tuple[str, int]]) -> list[Deed]:
        deeds: list[Deed] = []
        if addresses != self._addresses.get(id):
            self._addresses[id] = addresses
            deeds.append(Locate(id, addresses))
        if running != self.parts[id]:
            self.parts[id] = running
            deeds.append(Start(id) if running else Stop(id))
        return deeds
