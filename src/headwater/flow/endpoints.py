"""Where records come from and go to, as runners see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError

Reject = Callable[[str, str], None]  #: takes a record as text and why it cannot be read
Refused = dict[int, str]  #: rows of a batch that cannot be written, and why


class Reader(Protocol):
    """An open source; one thread reads it.

    One that cannot make its sender wait has a number `dropped` of the records for which it had no room; it only grows.
    """

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return up to `limit` records, none if nothing came in time, or None when nothing will ever come."""

    def close(self) -> None:
        """Release what was opened."""


class Source(Protocol):
    """Describes where records come from; opening it is the runner's business."""

    @property
    def schema(self) -> Schema:
        """The columns that its batches have."""

    def open(self, reject: Reject) -> Reader:
        """Start reading; what is not a record goes to `reject`, and reading goes on."""


class Writer(Protocol):
    """An open sink; one worker at a time writes to it.

    A writer that gathers records before they are where they belong also has `flush()`, which brings them there. What
    it cannot bring there it keeps, and tries again; `close` raises InputError with the number of those it had to give
    up as `records`.
    """

    def write(self, batch: Batch) -> Refused | None:
        """Take the records; return those rows that can never be written, each with its reason.

        The rows that are not returned are taken. Raises InputError when none can be, and then none of them is.
        """

    def close(self) -> None:
        """Finish what is written and release what was opened."""


class Sink(Protocol):
    """Describes where records go.

    It may say two things more of itself. `writers` is "many" where several writers of it may be open at once; without a
    word it has one, however parallel its step is. `claims(writing=True)` returns the `Place` that it writes, which no
    other step of the flow may then use.
    """

    def open(self, schema: Schema) -> Writer:
        """Start writing records of this schema."""


def writers_of(sink: Sink) -> Literal["one", "many"]:
    """Return whether a sink takes one writer at a time or many."""
    return "many" if getattr(sink, "writers", "one") == "many" else "one"


def write_whole(writer: Writer, batch: Batch) -> None:
    """Write records where nobody is left to take those that a sink refuses: raises InputError if there are any."""
    refused = writer.write(batch)
    if refused:
        raise InputError(f"{len(refused):,} records cannot be written: {min(refused.items())[1]}", records=len(refused))


def described(endpoint: Any) -> str:
    """Return a short text for drawings: the class, and what the endpoint says of itself."""
    name = type(endpoint).__name__
    if "__str__" not in vars(type(endpoint)):
        return name
    shown = str(endpoint)
    return f"{name}({shown if len(shown) <= 40 else '…' + shown[-39:]})"
