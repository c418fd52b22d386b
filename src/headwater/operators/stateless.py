"""Steps that look at each record alone: filter, select, map, split, union."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from headwater.data.batch import CREATED, Batch
from headwater.data.column import Column, checked_value, column_of
from headwater.data.schema import Schema
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.steps import Filter, Map, Select, Split
from headwater.operators.expression import compile_expression, compile_mask
from headwater.operators.operator import Operator, Output
from headwater.operators.retry import PartlyError


class FilterOperator(Operator):
    """Keeps the records for which a condition holds."""

    def __init__(self, kind: Filter, schema: Schema) -> None:
        self._mask = compile_mask(kind.condition, schema)

    def process(self, batch: Batch, port: int) -> Output:
        """Return the records that stay; the batch itself when all do."""
        rows = self._mask(batch).nonzero()[0]
        if len(rows) == batch.length:
            return batch
        return batch.take(rows) if len(rows) else None


class SelectOperator(Operator):
    """Computes columns by expressions."""

    def __init__(self, kind: Select, schema: Schema) -> None:
        self._columns = [(name, compile_expression(expression, schema)) for name, expression in kind.columns]
        self._keep = kind.keep

    def process(self, batch: Batch, port: int) -> Output:
        """Return the records with their new columns."""
        columns = dict(batch.columns) if self._keep else {}
        for name, compute in self._columns:
            columns[name] = compute(batch)
        return Batch(columns, batch.length, batch.stamps, batch.watermark)


class SplitOperator(Operator):
    """Sends each record one of two ways."""

    def __init__(self, kind: Split, schema: Schema) -> None:
        self._mask = compile_mask(kind.condition, schema)

    def process(self, batch: Batch, port: int) -> Output:
        """Return those for which the condition holds at output 0, the rest at output 1."""
        mask = self._mask(batch)
        return [(0, batch.filter(mask)), (1, batch.filter(~mask))]


class UnionOperator(Operator):
    """Passes records on."""

    def process(self, batch: Batch, port: int) -> Output:
        """Return the batch."""
        return batch


class MapBatchesOperator(Operator):
    """Applies a user's function to whole batches."""

    def __init__(self, kind: Map, out: Schema) -> None:
        self._function, self._out = kind.function, out

    def process(self, batch: Batch, port: int) -> Output:
        """Return what the function made of the batch, checked against the declared columns."""
        result = self._function(batch)
        if result is None or (isinstance(result, dict) and not result):
            raise FlowError(
                f"the function returned no columns; expected {listed(self._out)}, or those of them it changes; is a "
                "`return` missing?"
            )
        return fit_columns(result, self._out, batch)


class MapRecordsOperator(Operator):
    """Applies a user's function to one record after another; `many` if it gives any number back."""

    def __init__(self, kind: Map, out: Schema, *, in_turn: bool = False) -> None:
        """`in_turn` has it stop at a record that breaks the function, with what came of those before it."""
        self._function, self._out, self._many = kind.function, out, kind.many
        self._in_turn = in_turn

    def process(self, batch: Batch, port: int) -> Output:
        """Return the resulting records; None stands for no record."""
        results: list[Any] = []
        rows: list[int] = []
        for i, record in enumerate(batch.rows()):
            try:
                records = self._apply(record)
                if self._in_turn:
                    records_batch(records, [0] * len(records), self._out, batch)  # fits, or raises
            except Exception as error:
                if not self._in_turn:
                    raise
                raise PartlyError(error, i, records_batch(results, rows, self._out, batch)) from error
            results += records
            rows += [i] * len(records)
        return records_batch(results, rows, self._out, batch)

    def _apply(self, record: dict[str, Any]) -> list[Any]:
        result = self._function(record)
        if self._many:
            return list(result)
        return [] if result is None else [result]


def records_batch(records: list[Any], rows: list[int], out: Schema, batch: Batch) -> Batch | None:
    """Make a batch of the records that came of the batch's rows."""
    if not records:
        return None
    for record in records:
        if not isinstance(record, dict):
            raise FlowError(f"expected a record (a dict), got {type(record).__name__} {record!r}")
        if len(record) > len(out):
            _complain(record, out)
    columns = {
        name: column_of([checked_value(_field(r, name), kind, name) for r in records], kind, name=name)
        for name, kind in out.fields
    }
    return Batch(columns, len(records), batch.stamps.take(rows, axis=0))


def _field(record: dict[str, Any], name: str) -> Any:
    try:
        return record[name]
    except KeyError:
        raise FlowError(f"the result lacks {name!r}; it has {', '.join(map(repr, record)) or 'nothing'}") from None


def fit_columns(result: Any, out: Schema, batch: Batch, rows: Any = None) -> Batch | None:
    """Make a batch of what a function returned: a Batch, or columns of `out`.

    Columns that it does not return are taken from the batch it was given, unless it returns others that nobody declared:
    then a name is wrong. `rows` says which of the batch's records the results belong to, when not to all of them.
    """
    if result is None:
        return None
    if isinstance(result, Batch):
        if result is batch or len(result.stamps) == result.length:
            if result.columns.keys() != dict(out.fields).keys():
                _complain(result.columns, out)
            return result.of_columns({name: column_of(result[name], kind, name=name) for name, kind in out.fields})
        result = result.columns
    if not isinstance(result, dict):
        raise FlowError(f"expected columns (a dict of arrays) or a Batch, got {type(result).__name__}")
    inputs = batch.columns
    columns: dict[str, Column] = {}
    for name, kind in out.fields:
        if name in result:
            columns[name] = column_of(result[name], kind, name=name)
        elif name in inputs and result.keys() <= out.keys():
            columns[name] = column_of(inputs[name] if rows is None else inputs[name][rows], kind, name=name)
        else:
            _complain(result, out)
    lengths = {len(column) for column in columns.values()}
    length = next(iter(lengths), 0)
    if len(lengths) > 1:
        raise FlowError(f"columns differ in length: { {name: len(c) for name, c in columns.items()} }")
    return Batch(columns, length, _stamps(batch, length, rows), batch.watermark)


def _stamps(batch: Batch, length: int, rows: Any) -> Any:
    if rows is not None:
        return batch.stamps[rows]
    if length == batch.length:
        return batch.stamps
    # which record became which is not known: the oldest stands for all, so that latency is never flattered
    oldest = batch.stamps[batch.stamps[:, CREATED].argmin()] if batch.length else np.zeros(2, np.int64)
    return np.tile(oldest, (length, 1))


def _complain(columns: Any, out: Schema) -> NoReturn:
    lacks = [name for name in out if name not in columns]
    why = f"the result lacks {listed(lacks)}{suggestion(lacks[0], columns)}; " if lacks else ""
    raise FlowError(
        f"{why}expected columns {list(out)}, got {list(columns)}; declare what a function returns with out="
    )
