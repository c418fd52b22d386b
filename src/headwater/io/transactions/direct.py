"""Sinks that can only be written to: a part that was cut short by a kill is written once more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import CutTransaction, Ledger, Refused, Sink, account_of, flush, tell_idle, throttle_by
from headwater.io.transactions.journal import Journal


class Direct(CutTransaction):
    """Writes at once, and takes note of a part when the other side has it all: at least once."""

    def __init__(self, sink: Sink, schema: Schema, ledger: Ledger) -> None:
        self._journal = Journal.of(ledger)
        self._writer = sink.open(schema)

    @property
    def account(self) -> Callable[[], dict[str, Any]] | None:
        """How to ask what became of the records; None where the sink has no account."""
        return account_of(self._writer)

    @property
    def throttle(self) -> Callable[[float], None]:
        """Called with the fill level, where the sink keeps records that wait."""
        listener: Callable[[float], None] = getattr(self._writer, "throttle", _nobody)
        return listener

    @throttle.setter
    def throttle(self, listener: Callable[[float], None]) -> None:
        throttle_by(self._writer, listener)

    @property
    def committed(self) -> int:
        """The last part that the other side has."""
        return self._journal.committed

    def write(self, batch: Batch) -> Refused | None:
        """Write records."""
        return self._writer.write(batch)

    def advance(self, watermark: int) -> None:
        """Tell a sink that hears of event time how far it has come."""
        self._writer.advance(watermark)  # type: ignore[attr-defined]  # its sink says that it has one

    def idle(self, idle: bool) -> None:
        """Mark the stream as idle, or as active again."""
        tell_idle(self._writer, idle)

    def cut(self, number: int) -> Callable[[], None]:
        """Wait until nothing is left in a buffer, which takes the writer's own thread; the note is for later."""
        flush(self._writer)
        return partial(self._journal.prepare, number)

    def commit(self, number: int) -> None:
        """Take note; of what was not prepared, when nothing is left in a buffer."""
        if number not in self._journal.parts:
            flush(self._writer)
        self._journal.commit(number)

    def rollback(self) -> None:
        """Do nothing: what is written is written."""

    def close(self) -> None:
        """Close the sink."""
        self._writer.close()


def _nobody(share: float) -> None:
    """Ignore the fill level."""
