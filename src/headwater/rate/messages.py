"""What lanes and the supervisor say to each other: one JSON object a line, checked as it is read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.flow.contract import Contract
from headwater.flow.profile import Demand

#: held by nobody to the cost of others: less than none would be room that is not there
Cores = Annotated[float, msgspec.Meta(ge=0)]


class Findings(msgspec.Struct):
    """What admission has found out about a flow, and a lane that takes another's place need not find out again."""

    demand: Demand
    estimated: float
    measured: float | None = None  #: cores that a trial used; None where there was none


class Ask(msgspec.Struct, tag="ask"):
    """A process asks for cores for itself; who it is the socket says."""

    flow: str
    contract: Contract
    cores: Cores
    best_effort: bool = False
    lanes: Annotated[int, msgspec.Meta(ge=0)] = (
        1  #: processes that share them; 0 for an application of its own, such as of Spark
    )
    keeper: int = 0  #: the process that starts it again where it dies; 0 where nobody does
    found: Findings | None = None


class Settle(msgspec.Struct, tag="settle"):
    """A lane's trial has shown how many cores it needs."""

    id: str
    cores: Cores
    measured: float | None = None


class Tell(msgspec.Struct, tag="tell"):
    """A lane tells how it fares."""

    id: str
    used: float  #: cores, of late
    kept: int
    broken: int
    above: bool  #: whether more comes than was promised
    causes: dict[str, int] = {}  #: how many windows broke of what
    close: int = 0  #: windows that were kept, and of which some record was nearly too late


class End(msgspec.Struct, tag="end"):
    """A lane needs its cores no more."""

    id: str


class Resume(msgspec.Struct, tag="resume"):
    """A process takes the place of a lane that died, and was kept by the same keeper."""

    keeper: int


class Status(msgspec.Struct, tag="status"):
    """Somebody wants to know what is promised here."""


class Granted(msgspec.Struct, tag="granted"):
    """Cores are held, as long as the process that asked for them lives."""

    id: str
    cores: float
    grade: str
    how: str


class Resumed(msgspec.Struct, tag="resumed"):
    """The cores of a lane that died are held for the process that takes its place."""

    granted: Granted
    contract: Contract
    lanes: int
    found: Findings
    last: Tell | None  #: what that lane said last
    silent_s: float  #: how long ago that was


class Refused(msgspec.Struct, tag="refused"):
    """Cores cannot be had."""

    wanted: float
    left: float
    holders: list[tuple[str, float]]
    why: str
    said: str = ""  #: by the system, where that is why


class Noted(msgspec.Struct, tag="noted"):
    """What was told is known."""

    known: bool  #: whether the lane is one that cores are held for


class Lane(msgspec.Struct):
    """A promise as `headwater status` shows it."""

    id: str
    flow: str
    contract: Contract
    pid: int
    cores: float
    used: float = 0.0
    kept: int = 0
    broken: int = 0
    above: bool = False
    lanes: int = 1
    restarts: int = 0  #: how often it has died and was started again
    down: bool = False  #: whether it has died and is being started again
    causes: dict[str, int] = {}
    close: int = 0  #: of those that were kept, the windows in which some record was nearly too late


class Board(msgspec.Struct, tag="board"):
    """All that is promised on a machine."""

    cores: float
    capacity: float
    left: float
    grade: str
    how: str
    better: str
    lanes: list[Lane]
    may_ask: bool = True  #: whether whoever looks may also ask for promises


Request = Ask | Settle | Tell | End | Resume | Status
Reply = Granted | Resumed | Refused | Noted | Board

_requests = msgspec.json.Decoder(Request)
_replies = msgspec.json.Decoder(Reply)


def line(message: Request | Reply) -> bytes:
    """Write a message as a line."""
    return msgspec.json.encode(message) + b"\n"


def request(text: bytes) -> Request:
    """Read what a lane says."""
    message: Request = _requests.decode(text)
    return message


def reply(text: bytes) -> Reply:
    """Read what the supervisor says."""
    message: Reply = _replies.decode(text)
    return message
