"""What sites and the coordinator say to each other: MessagePack, checked as it is read. Sites dial; both say that they live.

A site is told what it should run, not what to do about it: the same word twice, or one more after a cut, changes nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headwater.deploy.part import SealedPart
from headwater.deploy.routes import Outgoing, Routes
from headwater.errors import RunError

Kind = Literal["engine", "spark"]  #: what runs the parts of a site
PROTOCOL = 2
BEAT_S = 0.5  #: how often either says that it is there
SILENT_S = 1.5  #: after which the other is taken for gone


class PartState(msgspec.Struct, frozen=True):
    """How a part fares at its site; the phases are those of a flow of `headwater serve`."""

    id: str
    phase: str
    why: str = ""
    port: int | None = None  #: at which its process listens
    routed: str = ""  #: the routes that its process goes by
    pid: int | None = None
    restarts: int = 0
    records_in: int = 0
    records_out: int = 0
    sinks: dict[str, int] = {}  #: the same by sink, bridges to other sites among them
    outgoing: dict[str, Outgoing] = {}  #: by stream
    taken: dict[str, int] = {}  #: records that each step has taken in
    cores: float = 0.0  #: that its process took in the last second
    lanes: int = 1  #: processes that share its work
    delay_ms: tuple[float, float] | None = None  #: of records that came out in it, since they came in here: p50, p99


class Lane(msgspec.Struct, frozen=True):
    """A promise that a site's ledger holds cores for, be it of a flow of ours or not."""

    id: str
    flow: str
    pid: int
    cores: float
    kept: int = 0  #: windows
    broken: int = 0
    close: int = 0  #: those of the kept ones in which some record was nearly too late
    causes: dict[str, int] = {}  #: of the broken ones


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What a site has, what of it is promised, and what it costs."""

    cores: float  #: that the site lends
    core_ips: float | None = None  #: instructions each second of one; None where that is as the net says of its devices
    free_memory_bytes: int
    busy: float = 0.0  #: the share of these cores that others had of late: all processes but the site's own
    capacity: float  #: cores that may be promised in all
    lanes: list[Lane] = []
    reserves: bool = True  #: whether cores can be held for parts: not where those work on a cluster
    price: float | None = None  #: an hour, in whatever the net's prices are in; None where the site does not say
    carbon: float | None = None  #: grams of CO2 for a kilowatt-hour
    why: str = ""  #: what could not be found out

    @property
    def promised(self) -> float:
        """Cores that are promised; more than the capacity where that has shrunk since."""
        return sum(lane.cores for lane in self.lanes)

    def lane_of(self, pid: int | None) -> Lane | None:
        """Return the promise of a process."""
        return next((lane for lane in self.lanes if lane.pid == pid), None)


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first word of a site."""

    name: str
    version: str  #: of Headwater
    protocol: int
    host: str | None  #: where other sites reach it; None for one that only dials
    cores: float
    memory_bytes: int
    kind: Kind = "engine"


class Report(msgspec.Struct, frozen=True, tag="report"):
    """How a site fares; each half second."""

    parts: list[PartState]
    load: float  #: of the machine: processes that want a core, over the last minute
    clock_s: float  #: what time it is there
    free_bytes: int  #: on the disk of its state
    heard: int = 0  #: the last `Want` of this connection that is done
    resources: Resources | None = None
    prepared: list[PartState] = []  #: parts that will be installed; their phases are those of `Warmth`


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """A site does not take a part, and why."""

    id: str
    why: str


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The site is admitted."""


class Refuse(msgspec.Struct, frozen=True, tag="refuse"):
    """The site is not admitted, and why."""

    why: str


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """A part that will be installed soon: it is checked, its promise too, and a process made ready for it.

    What runs goes on.
    """

    id: str
    sealed: SealedPart
    after: str = ""  #: the part before it, whose promise it takes over


class Install(msgspec.Struct, frozen=True, tag="install"):
    """A part to be kept, not to be started yet; one of a flow that was cut anew goes on from a checkpoint."""

    id: str
    sealed: SealedPart | None  #: None for one that was prepared
    checkpoint: dict[str, bytes] = {}
    after: str = ""  #: the part before it, whose sources and sinks it takes over


class Send(msgspec.Struct, frozen=True, tag="send"):
    """Large state of a part that will stop is to go ahead, while it runs: what does not change until then is there."""

    id: str
    move: str
    steps: dict[str, str]  #: and the site where each will be


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """A piece of state that goes ahead, by way of the coordinator."""

    move: str
    step: str
    key: str  #: of the state that it is of
    size: int  #: of that
    checksum: int  #: and of all its bytes
    at: int  #: where in it
    data: bytes

    @property
    def is_last(self) -> bool:
        """Whether nothing comes behind it."""
        return self.at + len(self.data) >= self.size


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """All that goes ahead of a part is on its way, by the keys of state and the step of each."""

    id: str
    move: str
    keys: dict[str, str]


class Have(msgspec.Struct, frozen=True, tag="have"):
    """State that went ahead is here, whole and safe."""

    move: str
    key: str


class Took(msgspec.Struct, frozen=True, tag="took"):
    """A piece has come: so many are on their way at once, and no more, that another may follow now."""

    move: str
    step: str
    key: str
    at: int


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """The coordinator wants the checkpoint of a part that was told to stop, once it has.

    Where that is much, because the part has saved all anew since state went ahead, that goes by pieces first, and the
    coordinator asks again.
    """

    id: str
    move: str = ""  #: for which: one that was asked for before is of no use
    known: list[str] = []  #: keys of state that is where it will be needed
    steps: dict[str, str] = {}  #: of the part, and the site where each will be


class Fetched(msgspec.Struct, frozen=True, tag="fetched"):
    """The checkpoint of a part, and the logs of its bridges."""

    id: str
    files: dict[str, bytes]
    move: str = ""


class Want(msgspec.Struct, frozen=True, tag="want"):
    """What should be of a part that is kept: that it runs, and what is known of the other sites."""

    id: str
    running: bool
    addresses: dict[str, tuple[str, int]] = {}
    ended: list[str] = []  #: the sites whose parts are through: they have all that was sent to them
    word: int = 0  #: counts them, so that a report from before this one is known as such
    routes: Routes | None = None  #: where its streams go to and come from; None where that is as the part says
    revoked: dict[str, str] = {}  #: whose certificates are refused at its bridges, as `Revoked`


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Parts that are over: they are stopped, and what was kept of them is removed."""

    ids: list[str]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Nothing is new, and somebody is there."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A question, or an order, of whoever has the coordinator's own certificate."""

    what: Literal["status", "stop", "forget", "move", "drain", "place", "open", "undo"]
    steps: list[
        str
    ] = []  #: that are to move, or, with "open", may be moved by the policy; the site that is to be drained
    site: str = ""  #: where to, which the policy chooses if it is not said; the site that is to be opened again
    sites: dict[str, str] = {}  #: where each step is to be placed; those that are not named stay


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What the coordinator says to it: a document, or why not."""

    document: dict[str, Any] = {}
    why: str | None = None


Message = (
    Hello
    | Report
    | Unfit
    | Welcome
    | Refuse
    | Prepare
    | Install
    | Send
    | Piece
    | Sent
    | Have
    | Took
    | Fetch
    | Fetched
    | Want
    | Forget
    | Ping
    | Ask
    | Answer
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def packed(message: Message) -> bytes:
    """Return a message as bytes."""
    return _encoder.encode(message)


def unpacked(data: bytes | bytearray) -> Message:
    """Return the message that bytes are; RunError for what is none."""
    try:
        message: Message = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise RunError(f"what came is no message of this version: {error}") from None
    return message
