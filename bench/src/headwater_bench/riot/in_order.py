"""A sink whose records come out in the order of their messages, however many workers wrote them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import DeliverySemantics, Ledger, Sink, Transaction, write_whole
from headwater.flow.places import Place, place_of
from headwater.io.transactions.spool import Spool


class InOrder:
    """Keeps all records until the last writer closes, then writes them to `sink` sorted by columns.

    For finite inputs: everything is in memory at the end. Records that are equal in all columns of `by` keep
    the order in which they came.
    """

    writers = "many"
    delivery: DeliverySemantics = "transactional"

    def __init__(self, sink: Sink, by: Sequence[str]) -> None:
        self.sink, self.by = sink, tuple(by)
        self._lock = threading.Lock()
        self._batches: list[Batch] = []
        self._open = 0

    def open(self, schema: Schema) -> _Keeper:
        """Start one more writer."""
        with self._lock:
            self._open += 1
        return _Keeper(self, schema)

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Keep all records on disk until the end."""
        return Spool(self, schema, ledger)

    def keep(self, batch: Batch) -> None:
        """Take records from a writer."""
        with self._lock:
            self._batches.append(batch)

    def close(self, schema: Schema) -> None:
        """Take note that a writer is done; write everything after the last."""
        with self._lock:
            self._open -= 1
            if self._open:
                return
            batches, self._batches = self._batches, []
        writer = self.sink.open(schema)
        try:
            if batches:
                whole = concat_batches(batches)
                keys = [_sortable(whole[name]) for name in reversed(self.by)]
                write_whole(writer, whole.take(np.lexsort(keys)))
        finally:
            writer.close()

    def claims(self, *, writing: bool) -> Place | None:
        """Return what the sink writes in the end."""
        return place_of(self.sink, writing=writing)

    def __str__(self) -> str:
        return f"{self.sink} in order"


class _Keeper:
    def __init__(self, sink: InOrder, schema: Schema) -> None:
        self._sink, self._schema = sink, schema

    def write(self, batch: Batch) -> None:
        self._sink.keep(batch)

    def close(self) -> None:
        self._sink.close(self._schema)


class TextLines:
    """Writes one text column to a file, a line for each record: messages as they were sent."""

    delivery: DeliverySemantics = "neither"

    def __init__(self, path: Path, column: str) -> None:
        self.path, self.column = path, column

    def open(self, schema: Schema) -> _LineWriter:
        """Start an empty file."""
        schema.type_of(self.column, what=f"file {self.path.name}")
        try:
            return _LineWriter(self.path.open("wb"), self.column)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from error

    def claims(self, *, writing: bool) -> Place:
        """Return the file."""
        return Place.of_file(self.path)

    def __str__(self) -> str:
        return str(self.path)


class _LineWriter:
    def __init__(self, file: BinaryIO, column: str) -> None:
        self._file, self._column = file, column

    def write(self, batch: Batch) -> None:
        self._file.write(b"\n".join([*batch[self._column].bytes_list(), b""]))

    def close(self) -> None:
        self._file.close()


def _sortable(column: Any) -> Any:
    return np.array(column.tolist()) if isinstance(column, Text) else column
