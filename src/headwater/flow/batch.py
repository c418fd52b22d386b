"""A batch: columns of equal length, the unit that moves between steps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headwater.errors import FlowError
from headwater.flow.column import Array, Column, Text, checked_value, column_of, concat, empty
from headwater.flow.schema import Schema

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

    def __init__(
        self, columns: dict[str, Column], length: int, stamps: Array, watermark: int = NO_WATERMARK
    ) -> None:
        self.columns = columns
        self.length = length
        self.stamps = stamps
        self.watermark = watermark

    @classmethod
    def of(cls, columns: Mapping[str, Any], schema: Schema, *, created_ns: Array | int | None = None) -> Batch:
        """Make a batch from arrays or lists, checked against a schema; created now unless told."""
        made = {name: column_of(columns[name], kind, name=name) for name, kind in schema.fields if name in columns}
        if len(made) != len(schema) or len(columns) != len(schema):
            raise FlowError(f"expected columns {list(schema)}, got {list(columns)}")
        lengths = {len(column) for column in made.values()}
        if len(lengths) > 1:
            raise FlowError(f"columns differ in length: { {name: len(column) for name, column in made.items()} }")
        length = lengths.pop() if lengths else 0
        return cls(made, length, stamped(length, created_ns))

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]], schema: Schema) -> Batch:
        """Make a batch from records; a field that a record lacks is missing (null), a wrong type is an error."""
        columns = {
            name: column_of([checked_value(row.get(name), kind, name) for row in rows], kind, name=name)
            for name, kind in schema.fields
        }
        return cls(columns, len(rows), stamped(len(rows)))

    @classmethod
    def mark(cls, watermark: int) -> Batch:
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

    def filter(self, keep: Array) -> Batch:
        """Return the records where the mask is true."""
        return self.take(keep.nonzero()[0])

    def take(self, rows: Array) -> Batch:
        """Return the records at these row numbers, in this order."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Batch(columns, len(rows), self.stamps[rows], self.watermark)

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
    now = time.time_ns()
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


def to_arrow(batch: Batch) -> Any:
    """Return an Arrow record batch that shares the columns' memory where it can."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([_arrow_array(c) for c in batch.columns.values()], list(batch.columns))


def _arrow_array(column: Column) -> Any:
    import pyarrow as pa

    from headwater.flow.column import Nullable

    if isinstance(column, Text):
        return column.to_arrow()
    if isinstance(column, Nullable):
        values = column.values.tolist() if isinstance(column.values, Text) else column.values
        return pa.array(values, mask=~column.valid)
    return pa.array(column)


def from_arrow(table: Any, schema: Schema, *, created_ns: Array | int | None = None) -> Batch:
    """Make a batch of an Arrow record batch or table, in the types of `schema`."""
    columns = {name: _from_arrow_array(table.column(name), schema[name]) for name in schema}
    return Batch(columns, table.num_rows, stamped(table.num_rows, created_ns))


def _from_arrow_array(array: Any, kind: Any) -> Column:
    import pyarrow as pa

    from headwater.flow.column import nullable
    from headwater.flow.schema import DTYPES

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if kind == "text":
        filled = array.fill_null("") if valid is not None else array
        text = Text.from_arrow(filled.cast(pa.string()))
        return text if valid is None else nullable(text, valid)
    if kind == "any":
        return column_of(array.to_pylist(), "any")
    if kind == "time" and pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    if valid is not None:
        array = array.fill_null(False if kind == "bool" else 0)
    values = array.to_numpy(zero_copy_only=False).astype(DTYPES[kind], copy=False)
    return values if valid is None else nullable(values, valid)


def json_rows(batch: Batch) -> Iterable[bytes]:
    """Encode each record as JSON."""
    import msgspec

    encode = msgspec.json.Encoder().encode
    return (encode(row) for row in batch.rows())
