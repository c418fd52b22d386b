"""A batch: columns of equal length, the unit that moves between steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headwater.clock import now_ns
from headwater.data.column import Array, Column, column_of, concat, empty
from headwater.data.schema import Schema
from headwater.errors import FlowError

NO_WATERMARK = -(2**63)  #: nothing is known of event time yet
END = 2**63 - 1  #: nothing will follow

CREATED, EMITTED = 0, 1  #: the columns of `stamps`


class Batch:
    """Columns of equal length, with the moments each record was created and emitted.

    `stamps` is an array of shape (length, 2): nanoseconds since 1970 at which the record was created (by a sensor or a
    generator) and at which its source emitted it. `watermark` says that no record older than it is expected to follow.

    >>> batch = Batch.of({"id": ["a", "b"], "x": [1.0, 2.0]}, Schema.of({"id": str, "x": float}))
    >>> batch["x"] * 2
    array([2., 4.])
    >>> batch.filter(batch["x"] > 1).rows()
    [{'id': 'b', 'x': 2.0}]
    """

    __slots__ = ("columns", "length", "stamps", "watermark")

    def __init__(self, columns: dict[str, Column], length: int, stamps: Array, watermark: int = NO_WATERMARK) -> None:
        self.columns = columns
        self.length = length
        self.stamps = stamps
        self.watermark = watermark

    @classmethod
    def of(cls, columns: Mapping[str, Any], schema: Schema, *, created_ns: Array | int | None = None) -> Batch:
        """Make a batch from arrays or lists, checked against a schema; created now unless told."""
        by_name = {name: column_of(columns[name], kind, name=name) for name, kind in schema.fields if name in columns}
        if len(by_name) != len(schema) or len(columns) != len(schema):
            raise FlowError(f"expected columns {list(schema)}, got {list(columns)}")
        lengths = {len(column) for column in by_name.values()}
        if len(lengths) > 1:
            raise FlowError(f"columns differ in length: { {name: len(column) for name, column in by_name.items()} }")
        length = lengths.pop() if lengths else 0
        return cls(by_name, length, stamped(length, created_ns))

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]], schema: Schema) -> Batch:
        """Make a batch from records; a field that a record lacks is missing (null), a wrong type is an error."""
        columns = {name: column_of([row.get(name) for row in rows], kind, name=name) for name, kind in schema.fields}
        return cls(columns, len(rows), stamped(len(rows)))

    @classmethod
    def of_watermark(cls, watermark: int) -> Batch:
        """Return a batch of no records that only carries a watermark."""
        return cls({}, 0, _NO_STAMPS, watermark)

    @classmethod
    def none(cls, schema: Schema) -> Batch:
        """Return a batch of no records."""
        return cls({name: empty(kind) for name, kind in schema.fields}, 0, _NO_STAMPS)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def with_columns(self, columns: Mapping[str, Column]) -> Batch:
        """Return a batch with columns replaced or added; same records, same stamps."""
        return Batch({**self.columns, **columns}, self.length, self.stamps, self.watermark)

    def of_columns(self, columns: dict[str, Column]) -> Batch:
        """Return a batch of other columns for the same records."""
        return Batch(columns, self.length, self.stamps, self.watermark)

    def filter(self, mask: Array) -> Batch:
        """Return the records where the mask is true."""
        return self.take(mask.nonzero()[0])

    def take(self, rows: Array) -> Batch:
        """Return the records at these row numbers, in this order."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        # pairs are taken by `take`, an order of magnitude faster than by an index
        return Batch(columns, len(rows), self.stamps.take(rows, axis=0), self.watermark)

    def slice(self, start: int, stop: int) -> Batch:
        """Return a run of records without copying."""
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return Batch(columns, stop - start, self.stamps[start:stop], self.watermark)

    def rows(self) -> list[dict[str, Any]]:
        """Return the records as dictionaries of Python values."""
        names = list(self.columns)
        values = [column.tolist() for column in self.columns.values()]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)] if names else []

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take."""
        return sum(column.nbytes for column in self.columns.values())

    def __repr__(self) -> str:
        return f"Batch({self.length} records: {', '.join(self.columns)})"


_NO_STAMPS = np.zeros((0, 2), np.int64)


def stamped(length: int, created_ns: Array | int | None = None) -> Array:
    """Return stamps for records created at the given moments (now by default) and emitted now."""
    stamps = np.empty((length, 2), np.int64)
    now = now_ns()
    stamps[:, CREATED] = now if created_ns is None else created_ns
    stamps[:, EMITTED] = now
    return stamps


def concat_batches(batches: Sequence[Batch]) -> Batch:
    """Join batches of one schema end to end; the watermark is the last one's."""
    if len(batches) == 1:
        return batches[0]
    full = [batch for batch in batches if batch.length]
    last = batches[-1].watermark
    if len(full) <= 1:
        only = full[0] if full else batches[-1]
        return only if only.watermark == last else Batch(only.columns, only.length, only.stamps, last)
    columns = {name: concat([batch.columns[name] for batch in full]) for name in full[0].columns}
    stamps = np.concatenate([batch.stamps for batch in full])
    return Batch(columns, len(stamps), stamps, last)
