"""What a site does about what it is told: messages in, deeds out; no process, file or socket in here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.deploy.control.messages import Fetch, Forget, Install, Message, Piece, Prepare, Send, Took, Want
from headwater.deploy.part import SealedPart
from headwater.deploy.revoked import Revoked
from headwater.deploy.routes import Routes


@dataclass(frozen=True, slots=True)
class Warm:
    """Check a part, and make a process ready for it."""

    id: str
    sealed: SealedPart
    after: str = ""


@dataclass(frozen=True, slots=True)
class Unpack:
    """Take a part, checked, without starting it."""

    id: str
    sealed: SealedPart | None  #: None for one that was made ready
    checkpoint: Mapping[str, bytes]
    after: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Return the checkpoint of a part that was told to stop, once it has."""

    id: str
    move: str
    known: Sequence[str] = ()
    steps: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SendAhead:
    """Send large state of a part ahead to where its steps will be."""

    id: str
    move: str
    steps: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SendMore:
    """Send what may follow a piece that has come."""

    took: Took


@dataclass(frozen=True, slots=True)
class KeepPiece:
    """Keep a piece of state for a part that will be installed."""

    piece: Piece


@dataclass(frozen=True, slots=True)
class Locate:
    """Note for a part's bridges where other sites are, which are through or revoked, and where streams go and come from."""

    id: str
    addresses: Mapping[str, tuple[str, int]]
    ended: Sequence[str]
    routes: Routes | None = None
    revoked: Revoked = field(default_factory=dict)


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


Deed = Warm | Unpack | HandOver | SendAhead | SendMore | KeepPiece | Locate | Start | Stop | Remove


class Agent:
    """The parts that a site has, and whether each should run; the same word twice changes nothing."""

    def __init__(self, parts: Mapping[str, bool], announced: Iterable[str] = ()) -> None:
        """`announced` are parts that were to be installed when the site was last at work: their state may still come."""
        self.parts, self._announced = dict(parts), set(announced)
        self.prepared: set[str] = set()  #: parts that will be installed soon
        self._located: dict[str, Locate] = {}

    def told(self, message: Message) -> list[Deed]:
        """Return what to do about a message."""
        match message:
            case Prepare(id, sealed, after) if id not in self.parts and id not in self.prepared:
                return [Warm(id, sealed, after)]
            case Install(id, sealed, checkpoint, after) if self._lacks(id, sealed):
                return [Unpack(id, sealed, checkpoint, after)]
            case Send(id, move, steps) if id in self.parts:
                return [SendAhead(id, move, steps)]
            case Took():
                return [SendMore(message)]
            case Piece(move) if move in self._announced and move not in self.parts:
                return [KeepPiece(message)]
            case Fetch(id, move, known, steps) if self.parts.get(id) is False:
                return [HandOver(id, move, known, steps)]
            case Want(id, running, addresses, ended, routes=routes, revoked=revoked) if id in self.parts:
                return self._wanted(running, Locate(id, addresses, ended, routes, revoked))
            case Forget(ids):
                leaving = [id for id in ids if id in self.parts or id in self.prepared]
                for id in leaving:
                    self.parts.pop(id, None)
                    self.prepared.discard(id)
                return [Remove(id) for id in leaving]
        return []

    def _lacks(self, id: str, sealed: SealedPart | None) -> bool:
        return id not in self.parts and (sealed is not None or id in self.prepared)

    def prepares(self, id: str) -> None:
        """Take note that a part was checked, and a process is made ready for it."""
        self.prepared.add(id)
        self._announced = {id}

    def has(self, id: str) -> None:
        """Take note that a part was taken."""
        self.parts[id] = False
        self.prepared.discard(id)

    def _wanted(self, running: bool, others: Locate) -> list[Deed]:
        deeds: list[Deed] = []
        id = others.id
        if others != self._located.get(id):
            self._located[id] = others
            deeds.append(others)
        if running != self.parts[id]:
            self.parts[id] = running
            deeds.append(Start(id) if running else Stop(id))
        return deeds
