"""Batches as Arrow tables whose types say what the columns are, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from headwater.data.batch import Batch, stamped
from headwater.data.column import Column, Text, column_of, nullable, parts
from headwater.data.schema import DTYPES, Schema, Type
from headwater.errors import FlowError, InputError, listed
from headwater.io.records import json_texts

try:
    import pyarrow as pa
    from pyarrow import ArrowInvalid as ArrowInvalid
except ImportError:
    raise FlowError("Parquet and Arrow need the package pyarrow: pip install 'headwater[arrow]'") from None

#: What each type is in Arrow; `any` is JSON text in a field that is marked.
ARROW: dict[Type, Any] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "float32": pa.float32(),
    "text": pa.string(),
    "time": pa.timestamp("us", "UTC"),
    "any": pa.string(),
}
_MARK = {b"headwater": b"any"}


def parquet() -> Any:
    """Return Arrow's module for Parquet; importing it takes a while."""
    import pyarrow.parquet as pq

    return pq


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema of a schema."""
    return pa.schema(
        [pa.field(name, ARROW[kind], metadata=_MARK if kind == "any" else None) for name, kind in schema.fields]
    )


def schema_of(fields: Any) -> Schema:
    """Return the schema that an Arrow schema's columns are read in."""
    names = [field.name for field in fields]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"columns {listed(twice)} are there more than once")
    return Schema.of({field.name: _kind(field) for field in fields})


def _kind(field: Any) -> Type:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "any" if field.metadata == _MARK else "text"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return "float32"
    if pa.types.is_float64(kind) or pa.types.is_decimal(kind):
        return "float"
    return "time" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else "any"


def table_of(batch: Batch, schema: Schema) -> Any:
    """Return a batch as an Arrow table."""
    arrays = [_array(batch[name], kind) for name, kind in schema.fields]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def _array(column: Column, kind: Type) -> Any:
    if kind == "any":
        return pa.array(json_texts(column), pa.string())
    values, valid = parts(column)
    if isinstance(values, Text):
        return values.to_arrow() if valid is None else pa.array(column.tolist(), pa.string())
    array = pa.array(np.ascontiguousarray(values), mask=None if valid is None else ~valid)
    return array.cast(ARROW[kind])


def batch_of(table: Any, schema: Schema) -> Batch:
    """Return an Arrow table or record batch as a batch; raises InputError where values do not fit."""
    objects = {name: _values(table.schema.field(name), table.column(name)) for name in schema if schema[name] == "any"}
    plain = schema.only(tuple(name for name in schema if name not in objects))
    try:
        arrays = [_cast(table.column(name), kind) for name, kind in plain.fields]
    except pa.ArrowInvalid as error:
        raise InputError(f"a value does not fit its column's type: {error}") from None
    columns = objects | {name: _column(array, kind) for (name, kind), array in zip(plain.fields, arrays, strict=True)}
    return Batch({name: columns[name] for name in schema}, table.num_rows, stamped(table.num_rows))


def runs_of(table: Any, schema: Schema) -> Iterator[tuple[Batch, tuple[str, str] | None]]:
    """Return a record batch as runs of records that fit, each with the row behind it that does not, as text, and why."""
    try:
        records = batch_of(table, schema)
    except InputError as error:
        if table.num_rows == 1:
            yield Batch.none(schema), (_as_text(table), str(error))
            return
        half = table.num_rows // 2
        yield from runs_of(table.slice(0, half), schema)
        yield from runs_of(table.slice(half), schema)
    else:
        yield records, None


def _as_text(row: Any) -> str:
    return ", ".join(f"{name}: {_scalar_text(row.column(name)[0])}" for name in row.schema.names)


def _scalar_text(scalar: Any) -> str:
    try:
        return str(scalar.as_py())
    except (OverflowError, ValueError):  # a moment that Python has no name for
        return str(scalar.value)


def _cast(array: Any, kind: Type) -> Any:
    """Return an array in the type that ARROW gives for `kind`; raises ArrowInvalid where a value does not fit."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if kind == "time" and pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        import pyarrow.compute as pc

        # down to the microsecond, as in text, also before 1970
        array = pc.floor_temporal(array.cast(pa.timestamp("ns")), unit="microsecond")
    return array.cast(ARROW[kind])


def _column(array: Any, kind: Type) -> Column:
    """Return an array of the type that ARROW gives for `kind`, sharing its memory where it can."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    values: Any
    if kind == "text":
        values = Text.from_arrow(array if valid is None else array.fill_null(""))
    else:
        array = array.cast(pa.int64()) if kind == "time" else array
        filled = array if valid is None else array.fill_null(False if kind == "bool" else 0)
        values = filled.to_numpy(zero_copy_only=False).astype(DTYPES[kind], copy=False)
    return values if valid is None else nullable(values, valid)


def _values(field: Any, array: Any) -> Column:
    values = array.to_pylist()
    if field.metadata == _MARK:
        values = [None if value is None else msgspec.json.decode(value) for value in values]
    return column_of(values, "any")
