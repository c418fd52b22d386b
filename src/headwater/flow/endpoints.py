"""Where records come from and go to, as runners see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headwater.flow.batch import Batch
from headwater.flow.schema import Schema

Reject = Callable[[str, str], None]  #: takes a record as text and why it cannot be read


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
    """An open sink; one worker at a time writes to it."""

    def write(self, batch: Batch) -> None:
        """Write the records; raises InputError when it cannot, and then none counts as written."""

    def close(self) -> None:
        """Finish what is written and release what was opened."""


class Sink(Protocol):
    """Describes where records go."""

    def open(self, schema: Schema) -> Writer:
        """Start writing records of this schema."""


def described(endpoint: Any) -> str:
    """Return a short text for drawings: the class, and what the endpoint says of itself."""
    name = type(endpoint).__name__
    if "__str__" not in vars(type(endpoint)):
        return name
    shown = str(endpoint)
    return f"{name}({shown if len(shown) <= 40 else '…' + shown[-39:]})"
