"""What lanes and the supervisor say to each other: one JSON object a line, checked as it is read."""

from __future__ import annotations

import msgspec

from headwater.flow.contract import Contract


class Ask(msgspec.Struct, tag="ask"):
    """A process asks for cores for itself; who it is the socket says."""

    flow: str
    contract: Contract
    cores: float
    best_effort: bool = False


class Settle(msgspec.Struct, tag="settle"):
    """A lane's trial has shown how many cores it needs."""

    id: str
    cores: float


class Tell(msgspec.Struct, tag="tell"):
    """A lane tells how it fares."""

    id: str
    used: float  #: cores, of late
    kept: int
    broken: int
    above: bool  #: whether more comes than was promised


class End(msgspec.Struct, tag="end"):
    """A lane needs its cores no more."""

    id: str


class Status(msgspec.Struct, tag="status"):
    """Somebody wants to know what is promised here."""


class Granted(msgspec.Struct, tag="granted"):
    """Cores are held, as long as the process that asked for them lives."""

    id: str
    cores: float
    grade: str
    how: str


class Refused(msgspec.Struct, tag="refused"):
    """Cores cannot be had."""

    wanted: float
    left: float
    holders: list[tuple[str, float]]
    why: str


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


class Board(msgspec.Struct, tag="board"):
    """All that is promised on a machine."""

    cores: float
    capacity: float
    left: float
    grade: str
    how: str
    better: str
    lanes: list[Lane]


Request = Ask | Settle | Tell | End | Status
Reply = Granted | Refused | Noted | Board

_requests = msgspec.json.Decoder(Request)
_replies = msgspec.json.Decoder(Reply)


def line(message: Request | Reply) -> bytes:
    """Write a message as a line."""
    return msgspec.json.encode(message) + b"\n"


def request(text: bytes) -> Request:
    """Read what a lane says."""
    found: Request = _requests.decode(text)
    return found


def reply(text: bytes) -> Reply:
    """Read what the supervisor says."""
    found: Reply = _replies.decode(text)
    return found
