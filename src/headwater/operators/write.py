"""The last step: hands batches to an open sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import HeadwaterError, NoRoomError, RunError
from headwater.flow.endpoints import (
    Transaction,
    Writer,
    account_of,
    all_or_none,
    tell_idle,
    throttle_by,
    writes_in_parts,
)
from headwater.flow.steps import Write
from headwater.operators.fault_isolation import error_text
from headwater.operators.operator import DEAD, Operator, Output, dead_letters

Begin = Callable[[Any, Schema], Transaction]  #: opens a sink to be written in parts


class WriteOperator(Operator):
    """Writes each batch; opens the sink when the first is about to come.

    A run that keeps checkpoints writes in parts (`transaction`), which are there when their checkpoint is complete.
    """

    def __init__(self, kind: Write, name: str, schema: Schema, transaction: Begin | None = None) -> None:
        self._name = name
        #: a batch that fails half-way may be half written: only where none of it is may it be tried again in parts
        self.stateless = all_or_none(kind.sink) and (transaction is None or not writes_in_parts(kind.sink))
        try:
            self._parts = None if transaction is None else transaction(kind.sink, schema)
            self._writer: Writer | None = self._parts or kind.sink.open(schema)
        except HeadwaterError:
            raise
        except Exception as error:  # of a sink of somebody's own
            raise RunError(f"sink {name!r} cannot be opened: {error_text(error)}", step=name) from error
        #: tells what became of records after they were taken; None for a writer that has nothing to tell
        self.account = account_of(self._writer)

    def process(self, batch: Batch, port: int) -> Output:
        """Write the batch; the records that the sink refuses are dead letters, and the others come out."""
        assert self._writer is not None
        refusals = self._writer.write(batch) if batch.length else None
        if not refusals:
            return None
        rows = np.array(sorted(refusals))
        letters = dead_letters(self._name, [refusals[row] for row in rows.tolist()], batch.take(rows))
        return [(0, batch.take(np.delete(np.arange(batch.length), rows))), (DEAD, letters)]

    def prepare(self, number: int) -> Callable[[], None] | None:
        """End the part that is being written; what is returned has it safe."""
        return None if self._parts is None else self._parts.cut(number)

    def commit(self, number: int) -> None:
        """Let the parts up to a checkpoint be seen."""
        if self._parts is not None and number > self._parts.committed:
            self._parts.commit(number)

    def hold_by(self, throttle: Callable[[float], None]) -> None:
        """Have a writer that keeps what waits tell how much of its room is taken."""
        if self._writer is not None:
            throttle_by(self._writer, throttle)

    def close(self) -> None:
        """Close the sink, once; where it raises NoRoomError it may be closed again, or is to be given up."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except NoRoomError:
                self._writer = writer
                raise

    def abandon(self) -> None:
        """Give up a sink that a full disk has no room for: what it has begun is removed, where it can say how."""
        writer, self._writer = self._writer, None
        abandon = getattr(writer, "abandon", None)
        if abandon is not None:
            abandon()


class TimedWriteOperator(WriteOperator):
    """Writes to a sink that wants to know how far event time has come, such as a bridge to another site."""

    def advance(self, watermark: int) -> Output:
        """Tell the writer; `END` when nothing will follow."""
        assert self._writer is not None
        self._writer.advance(watermark)  # type: ignore[attr-defined]  # its sink says that it has one
        return None

    def idle(self, idle: bool) -> None:
        """Tell the writer that nobody needs to wait for what comes here, or again."""
        assert self._writer is not None
        tell_idle(self._writer, idle)
