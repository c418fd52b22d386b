"""What a coordinator hears of, and what it has done about it: plain values, so that it can be tried without a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.deploy.control.messages import Hello, Message
from headwater.deploy.coordinator.state import Deployment, Move
from headwater.deploy.revoked import Revoked


@dataclass(frozen=True, slots=True)
class Joined:
    """A site has called; `address` is where it called from."""

    site: str
    hello: Hello
    address: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """A site is not to be heard any more."""

    site: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A site has said something."""

    site: str
    message: Message
    clock_s: float = 0.0  #: what time it is here


@dataclass(frozen=True, slots=True)
class Deploy:
    """Somebody wants a flow to run."""

    deployed: Deployment


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody wants the flow to stop, with checkpoints."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Somebody wants a flow that was stopped to go on."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Somebody wants a flow that has stopped, and all that sites keep of it, to be gone."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Somebody wants steps to be at other sites."""

    move: Move


@dataclass(frozen=True, slots=True)
class Recut:
    """The checkpoints of the new parts are made, by site and file."""

    id: str
    checkpoints: Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Undo:
    """The move is not to be: the flow goes on as it was."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Revoke:
    """Certificates are refused from now on: all that are revoked."""

    revoked: Revoked


Event = Joined | Left | Heard | Deploy | Stop | Resume | Drop | Begin | Recut | Undo | Revoke


@dataclass(frozen=True, slots=True)
class Say:
    """Tell a site something."""

    site: str
    message: Message


@dataclass(frozen=True, slots=True)
class Ready:
    """Sign the part that a site is to have after a move, and have it prepared there."""

    site: str
    deployed: Deployment
    after: str = ""


@dataclass(frozen=True, slots=True)
class Hand:
    """Sign a site's part, and send it; one of a move with its checkpoint."""

    site: str
    deployed: Deployment
    checkpoint: Mapping[str, bytes] = field(default_factory=dict)
    after: str = ""
    prepared: bool = False  #: the part itself is there


@dataclass(frozen=True, slots=True)
class Cut:
    """Make the checkpoints of the new parts from those of the old ones."""

    deployed: Deployment
    taken: Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, slots=True)
class Keep:
    """Have what is kept safe on disk before anything else is done."""


Command = Say | Ready | Hand | Cut | Keep
