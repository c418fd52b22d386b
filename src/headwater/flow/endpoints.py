"""Where records come from and go to, as runners see it: what every endpoint has, and what it may declare of itself.

A source needs a schema and `open`, a sink needs `open`; that is enough to run anywhere. What else one can do it says in
attributes and methods of its own, all optional, and runners ask for them here alone.

| a source may have | which says |
|---|---|
| `resume` | how reading goes on after a stop, see `Resume` |
| `recognizes` | that `open(reject, known)` takes what a reader told as `known`, and what its sender sends again comes once |
| `ranges(wanted)` | that ranges of it can be read side by side, see `headwater.flow.ranges` |
| `at_rate(rate)` | that the same records can be had at another rate |
| `from_file(path)` | that the same kind of records can be read from a file, in a form of their own |
| `check_read()` | what is wrong with it, before anything is started |
| `tells_time` | true where event time comes with its records: what waits is never shed or spilled, or the rest were late |
| `splits` | true where its records come from several splits, each in an order of its own, see `headwater.flow.splits` |
| `once` | true where what was committed is gone with its sender: a position alone does not bring it back |
| `identity` | plain values that tell it from others of its kind, see `headwater.flow.identity` |
| `other_than(before)` | how it differs from what it was, where more of it may have come since |
| `inner` | true where it reads what another part of the same run makes: it ends by itself, and is never shed or spilled |
| `claims(writing=False)` | the `Place` that it reads, see `headwater.flow.places` |
| `anywhere` | true where it is the same from every site, so that it may move: its address is reached from all of them |

| a reader may have | which says |
|---|---|
| `position` | what was handed out so far, as a plain value that can be stored |
| `take_no_more()` | that it takes nothing from its sender once it is told that it is read no more, before it is closed |
| `take_barrier()` | of an `inner` source: the checkpoint whose barrier it has come to, and whether it is the last |
| `idle` | of an `inner` source, or one that tells time: true while nobody needs to wait for what it brings |
| `let_go()` | that a `read` which waits for records returns at once; called by another thread, when the run stops |
| `start_anew()` | that its records fall due by a clock of its own, which goes on at the next `read`: it may wait |
| `leave_halves()` | that it can leave a last record that may be half written for a later run |
| `commit(position)` | that all before a position is safe: who sent it may forget it |
| `known` | what was handed out and may be sent again, as a plain value, for a source that recognizes it |
| `awaits_commit` | true while its sender sends no more until what it sent is committed, so that nobody must dawdle |
| `dropped` | how many records it had no room for, a number that only grows: its sender cannot be made to wait |
| `why_dropped` | the reason that reports give for those, unless it is that its buffer was full |

| a sink may have | which says |
|---|---|
| `delivery` | what holds when records come again, see `DeliverySemantics` |
| `transaction(schema, ledger)` | how it is written in parts; with delivery "transactional" each is there once; or None |
| `again` | what receivers have of a record that is there twice, in words |
| `appended(schema)` | how it is written behind what it holds, where `open` begins anew |
| `remote` | true where a network is between: a run with checkpoints keeps records on disk until they are there |
| `writers` | "many" where several writers may be open at once; else it has one, however parallel its step is |
| `hears_time` | true where its writer has `advance(watermark)`, called when event time moves on, and with `END` at the end |
| `all_or_none` | true where a `write` that raises anything has written nothing: the batch may be tried again in parts |
| `apart` | true where those writers may be in different processes: nothing of the sink is in this one's memory |
| `staged` | true where its transaction is a `StagedWriter`, so that tasks of Spark write its records where they are |
| `in_order` | true where it shows which record came first: several writers then have the records of different keys |
| `check_write(schema)` | what is wrong with the columns that it would get |
| `check_place(in_parts)` | what is wrong with where it writes, told before any sink of the run begins anew |
| `check_append(schema)` | what is wrong with these columns behind those that are written already |
| `claims(writing=True)` | the `Place` that it writes, which no other step of the flow may then use |
| `rehearsed()` | a sink that does the same work and leaves nothing behind, by which is known what a promise needs |

A writer that keeps records which wait may have `throttle`, a function that the runner puts there: called with the share of
its room that is taken, from 0 to 1, it has the sources held that feed the writer. Any thread may call it.

A writer that hears of event time may have `idle(idle)`: called with true when nobody needs to wait for the stream, which is
silent, and with false when that is over.

A writer that gathers records may have `flush()`, which brings them where they belong. One whose other side knows what it was
sent before may have `write_keyed(batch, key)`, with the same key whenever a batch is sent again; it is kept however often
that fails, remembers what the other side has of the batch, and mends its own connection. One that
brings them there later, or not at all, may have `account()`, which says how many, for the report; it is asked after `close`
too. One whose `close` raises NoRoomError is closed again when there may be room, or where the run gives up it is given up by
`abandon()`, if it has that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError, listed
from headwater.flow.parts import CutTransaction as CutTransaction
from headwater.flow.parts import Ledger as Ledger
from headwater.flow.parts import NumberedWriter as NumberedWriter
from headwater.flow.parts import StagedWriter as StagedWriter
from headwater.flow.parts import Staging as Staging
from headwater.flow.parts import Transaction as Transaction

Reject = Callable[[str, str], None]  #: takes a record as text and why it cannot be read
Refused = dict[int, str]  #: rows of a batch that cannot be written, and why

#: How a source goes on after a stop: from a `position` that its reader told, by `open(reject, position)`; where its sender
#: has it, who keeps what was not committed; from the beginning, all of it again; or never, since what was not read then
#: is gone.
Resume = Literal["position", "sender", "beginning", "never"]

#: What a sink can promise of records that come again after a stop. In a transactional one they are there once: what did not
#: come to its end is taken back. An idempotent one may get them again, and holds what it held. Neither: they may be there
#: twice.
DeliverySemantics = Literal["transactional", "idempotent", "neither"]

_RESUMES: tuple[Resume, ...] = ("position", "sender", "beginning", "never")
_DELIVERIES: tuple[DeliverySemantics, ...] = ("transactional", "idempotent", "neither")


class Reader(Protocol):
    """An open source; one thread reads it."""

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return up to `limit` records, none if nothing came in time, or None when nothing will ever come."""

    def close(self) -> None:
        """Release what was opened; what was not committed by then is not acknowledged."""


class Source(Protocol):
    """Describes where records come from; opening it is the runner's business."""

    @property
    def schema(self) -> Schema:
        """The columns that its batches have."""

    def open(self, reject: Reject) -> Reader:
        """Start reading; what is not a record goes to `reject`, and reading goes on.

        One that resumes by position takes a second argument, the position that a reader told, or None.
        """


class Writer(Protocol):
    """An open sink; one worker at a time writes to it.

    What a writer with `flush` cannot bring where it belongs it keeps, and tries again; `close` raises InputError with the
    number of those it had to give up as `records`.
    """

    def write(self, batch: Batch) -> Refused | None:
        """Take the records; return those rows that can never be written, each with its reason.

        The rows that are not returned are taken. Raises InputError when none can be, and then none of them is.
        """

    def close(self) -> None:
        """Finish what is written and release what was opened."""


class Sink(Protocol):
    """Describes where records go."""

    def open(self, schema: Schema) -> Writer:
        """Start writing records of this schema."""


def resume_of(source: Source) -> Resume:
    """Return how a source goes on after a stop; one that says nothing begins again."""
    return cast(Resume, _declaration(source, "resume", _RESUMES, "beginning"))


def may_move(source: Source) -> bool:
    """Tell whether a source can go on at another site: it is the same from there, and a position says where."""
    return getattr(source, "anywhere", False) is True and resume_of(source) == "position"


def delivery_of(sink: Sink) -> DeliverySemantics:
    """Return what a sink promises of records that come again; one that says nothing promises nothing."""
    return cast(DeliverySemantics, _declaration(sink, "delivery", _DELIVERIES, "neither"))


def writes_in_parts(sink: Sink) -> bool:
    """Tell whether a sink has parts of its own way, and needs no log before it."""
    return getattr(sink, "transaction", None) is not None


def writers_of(sink: Sink) -> Literal["one", "many"]:
    """Return whether a sink takes one writer at a time or many."""
    return "many" if getattr(sink, "writers", "one") == "many" else "one"


def _call(endpoint: Any, method: str, *args: Any) -> Any:
    """Call a method that an endpoint may lack; None where it does."""
    function = getattr(endpoint, method, None)
    return None if function is None else function(*args)


def rehearsed(sink: Sink) -> Sink | None:
    """Return a sink that does the same work and leaves nothing behind; None for one that has no such thing."""
    rehearsal: Sink | None = _call(sink, "rehearsed")
    return rehearsal


def at_rate(source: Source, rate: Any) -> Source | None:
    """Return a source of the same records at another rate; None where its records come when they come."""
    variant: Source | None = _call(source, "at_rate", rate)
    return variant


def from_file(source: Source, path: Path) -> Source | None:
    """Return a source of such records in a file; None where they have no form of their own."""
    variant: Source | None = _call(source, "from_file", path)
    return variant


_FIXED = frozenset({type(None), bool, int, float, str, bytes})


def open_reader(source: Source, reject: Reject, position: Any = None) -> Reader:
    """Open a source after a position; one that does not resume by position starts as it always does."""
    if position is not None and (resume_of(source) == "position" or recognizes(source)):
        return source.open(reject, _private_copy(position))  # type: ignore[call-arg]  # it says that it takes one
    return source.open(reject)


def recognizes(source: Source) -> bool:
    """Tell whether what a source is sent again, after a stop, comes once."""
    return getattr(source, "recognizes", False) is True


def known_of(reader: Reader) -> Any:
    """Return by what a source recognizes what it is sent again; None for one that cannot."""
    return getattr(reader, "known", None)


def position_of(reader: Reader) -> Any:
    """Return what a reader has handed out so far; None for one that cannot tell. It stays so when the reader goes on."""
    return _private_copy(getattr(reader, "position", None))


def _private_copy(position: Any) -> Any:
    """Return a position that nobody else changes: a reader may have one that moves in place."""
    return position if type(position) in _FIXED else deepcopy(position)


def commit(reader: Reader, position: Any) -> None:
    """Tell a reader that all before a position is safe."""
    if position is not None:
        _call(reader, "commit", position)


def awaits_commit(reader: Reader) -> bool:
    """Tell whether who sends to a reader waits for commits: then to leave records to gather slows the sender down."""
    return bool(getattr(reader, "awaits_commit", False))


def is_inner(source: Source) -> bool:
    """Tell whether a source reads what another part of the same run makes."""
    return getattr(source, "inner", False) is True


def barrier_of(reader: Reader) -> tuple[int, bool] | None:
    """Take the checkpoint whose barrier a reader of another part of the same run has come to, and whether it is the last."""
    barrier: tuple[int, bool] | None = _call(reader, "take_barrier")
    return barrier


def is_idle(reader: Reader) -> bool:
    """Tell whether nobody needs to wait for the event time of what a reader brings from another part of the flow."""
    return getattr(reader, "idle", False) is True


def tell_idle(writer: Writer, idle: bool) -> None:
    """Tell a writer that hears of event time that nobody needs to wait for what comes to it, or again."""
    _call(writer, "idle", idle)


def clock_of(reader: Reader) -> Callable[[], None] | None:
    """Return what has the clock of a reader go on from the next read; None for a reader that has none."""
    return getattr(reader, "start_anew", None)


def leave_halves(reader: Reader) -> None:
    """Ask a reader to leave a last record that may be half written for a later run."""
    _call(reader, "leave_halves")


def take_no_more(reader: Reader) -> None:
    """Let a reader know that it is read no more, so that nobody who sends to it waits for the end of the run."""
    _call(reader, "take_no_more")


def let_go(reader: Reader) -> None:
    """Have a reader that waits for records return from it, so that a run need not wait for it to stop."""
    _call(reader, "let_go")


def dropped_by(reader: Reader) -> int:
    """Return for how many records a reader had no room so far."""
    return int(getattr(reader, "dropped", 0))


def why_dropped(reader: Reader) -> str:
    """Return why a reader drops records, in its own words; nothing for one that has no room."""
    return str(getattr(reader, "why_dropped", ""))


def flush(writer: Writer) -> None:
    """Bring what a writer has gathered where it belongs."""
    _call(writer, "flush")


def gathers(writer: Writer | None) -> bool:
    """Tell whether what a writer has taken may not be where it belongs before it is flushed."""
    return getattr(writer, "flush", None) is not None


def keyed_write_of(writer: Writer | None) -> Callable[[Batch, str], Refused] | None:
    """Return how to write a batch under a key, the same whenever it is sent again; None where a writer has no such way."""
    keyed: Callable[[Batch, str], Refused] | None = getattr(writer, "write_keyed", None)
    return keyed


def throttle_by(writer: Writer, throttle: Callable[[float], None]) -> None:
    """Have a writer that keeps records which wait tell how much of its room is taken."""
    if getattr(writer, "throttle", None) is not None:
        writer.throttle = throttle  # type: ignore[attr-defined]


def account_of(writer: Writer) -> Callable[[], dict[str, Any]] | None:
    """Return how to ask a writer what became of the records that it took; None for one that has nothing to tell."""
    account: Callable[[], dict[str, Any]] | None = getattr(writer, "account", None)
    return account


def check_source(source: Source) -> None:
    """Raise what a source has to say against being read, where it can tell without being opened for good."""
    _call(source, "check_read")


def check_sink(sink: Sink, schema: Schema) -> None:
    """Raise what a sink has to say against these columns."""
    _call(sink, "check_write", schema)


def check_place(sink: Sink, *, in_parts: bool) -> None:
    """Raise what a sink has to say against where it writes, which it only looks at; `in_parts` as with a checkpoint."""
    _call(sink, "check_place", in_parts)


def check_append(sink: Sink, schema: Schema) -> None:
    """Raise what a sink has to say against going on with these columns behind what a run before has written."""
    _call(sink, "check_append", schema)


def is_appended_to(sink: Sink) -> bool:
    """Tell whether a sink can go on behind what it holds."""
    return getattr(sink, "appended", None) is not None


def open_behind(sink: Sink, schema: Schema) -> Writer:
    """Open a sink to write behind what it holds, where opening it would begin anew."""
    opens: Callable[[Schema], Writer] = getattr(sink, "appended", None) or sink.open
    return opens(schema)


def is_remote(sink: Sink) -> bool:
    """Tell whether a network is between, so that records need a place to wait."""
    return getattr(sink, "remote", False) is True


def apart(sink: Sink) -> bool:
    """Return whether several writers of a sink may be in different processes."""
    return writers_of(sink) == "many" and getattr(sink, "apart", False) is True


def in_order(sink: Sink) -> bool:
    """Return whether somebody who looks at what a sink has can tell in which order it came."""
    return getattr(sink, "in_order", False) is True


def tells_time(source: Source) -> bool:
    """Return whether event time comes with a source's records, as the watermarks of its batches."""
    return getattr(source, "tells_time", False) is True


def comes_once(source: Source) -> bool:
    """Return whether what was committed cannot be read again, though a position says where to go on."""
    return getattr(source, "once", False) is True


def hears_time(sink: Sink) -> bool:
    """Return whether a sink wants to know how far event time has come."""
    return getattr(sink, "hears_time", False) is True


def all_or_none(sink: Sink) -> bool:
    """Return whether a write that raises has written nothing, whatever it raises."""
    return getattr(sink, "all_or_none", False) is True


def write_whole(writer: Writer, batch: Batch) -> None:
    """Write records where nobody is left to take those that a sink refuses: raises InputError if there are any."""
    refusals = writer.write(batch)
    if refusals:
        raise InputError(
            f"{len(refusals):,} records cannot be written: {min(refusals.items())[1]}", records=len(refusals)
        )


def label_of(endpoint: Any) -> str:
    """Return a short text for drawings: the class, and what the endpoint says of itself."""
    name = type(endpoint).__name__
    if "__str__" not in vars(type(endpoint)):
        return name
    text = str(endpoint)
    return f"{name}({text if len(text) <= 40 else '…' + text[-39:]})"


def _declaration(endpoint: Any, what: str, choices: Sequence[str], usual: str) -> str:
    value = getattr(endpoint, what, usual)
    if value not in choices:
        raise FlowError(f"{label_of(endpoint)}: {what} is one of {listed(choices)}; got {value!r}")
    return str(value)
