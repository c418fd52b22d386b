"""The comparisons of a plain chain as tables for the kernels: which value of a record against which of an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Absence, Accept, Automaton, Condition, label
from headwater.cep.expressions import rename_columns
from headwater.cep.kernels import waiting as k
from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text, parts
from headwater.data.schema import NUMERIC, Schema, Type
from headwater.flow.expr import Expr
from headwater.operators.expression import compile_expression

_OPERATORS = {"eq": k.EQ, "ne": k.NE, "lt": k.LT, "le": k.LE, "gt": k.GT, "ge": k.GE}


@dataclass(frozen=True)
class DerivedValue:
    """A value of each record that is compared with others; all become whole numbers of the same order."""

    stream: int
    expr: Expr
    kind: Type  #: what it is compared as

    def reader(self, schema: Schema) -> Callable[[Batch], Column]:
        """Return a function that computes the values of a batch; a record without an answer was not to be compared."""
        return compile_expression(self.expr, schema, unfit_is_missing=True)


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a chain: row c says (operator, this record's value, place of the earlier one, its value)."""

    derived: tuple[DerivedValue, ...]
    conditions: Array
    bounds: Array  #: the conditions of side i are bounds[i] … bounds[i + 1] - 1
    index: Array  #: for each side, how partial matches are found, and by which condition


def comparisons(automaton: Automaton) -> Comparisons | None:
    """Return the tables of a plain chain, or None when another matcher must run it.

    Plain: places that take one record each, `every` before the first or nowhere, and conditions that compare a value of
    the record with a value of one earlier record.
    """
    if automaton.scopes not in ((), ((0, 0),)):
        return None
    if any(not isinstance(stage, Accept) or stage.counted for stage in automaton.stages):
        return None
    places = {take.ref: i for i, take in enumerate(automaton.accepts())}
    return compare(automaton, lambda earlier: places[earlier.ref or ""])


def compare(automaton: Automaton, place_of: Callable[[s.Attribute], int]) -> Comparisons | None:
    """Return the comparisons of every side, or None when a condition is none; `place_of` says where a record is kept."""
    rows: list[tuple[int, int, int, int]] = []
    derived: list[DerivedValue] = []
    bounds = [0]
    for side in automaton.sides():
        for condition in side.cross:
            row = _row(automaton, side, condition, derived, place_of)
            if row is None:
                return None
            rows.append(row)
        bounds.append(len(rows))
    conditions = np.array(rows, np.int64).reshape(len(rows), 4)
    index = np.array([_index(conditions, a, b) for a, b in pairwise(bounds)], np.int64)
    return Comparisons(tuple(derived), conditions, np.array(bounds, np.int64), index)


def _row(
    automaton: Automaton,
    side: Accept | Absence,
    condition: Condition,
    derived: list[DerivedValue],
    place_of: Callable[[s.Attribute], int],
) -> tuple[int, int, int, int] | None:
    for sign, value, other in condition.comparisons():
        attributes = condition.earlier(other)
        if len({(a.ref, a.index) for a in attributes}) > 1:
            return None
        kind = _common(value.type_in(condition.schema), other.type_in(condition.schema), sign)
        if kind is None:
            return None
        earlier = automaton.event_of(attributes[0].ref or "")
        earlier_value = rename_columns(other, {label(a): a.name for a in attributes})
        columns = [
            _add(derived, DerivedValue(side.stream, value, kind)),
            _add(derived, DerivedValue(earlier.stream, earlier_value, kind)),
        ]
        return _OPERATORS[sign], columns[0], place_of(attributes[0]), columns[1]
    return None


def _common(one: Type, two: Type, op: str) -> Type | None:
    if one == two and one != "any" and (one != "text" or op in ("eq", "ne")):
        return one
    if {one, two} <= {*NUMERIC, "time"}:
        return "time" if {one, two} <= {"int", "time"} else "float"
    return None


def _add(derived: list[DerivedValue], new: DerivedValue) -> int:
    for i, other in enumerate(derived):
        if (other.stream, str(other.expr), other.kind) == (new.stream, str(new.expr), new.kind):
            return i
    derived.append(new)
    return len(derived) - 1


def _index(conditions: Array, start: int, stop: int) -> tuple[int, int]:
    """Choose how a side finds its partial matches: by equal value, else by order, else by what is new, else all."""
    for operators, kind in (((k.EQ,), k.HASH), ((k.GT, k.GE), k.LOW), ((k.LT, k.LE), k.HIGH)):
        for c in range(start, stop):
            if conditions[c, 0] in operators:
                return kind, c
    return (k.UNLIKE, start) if stop - start == 1 else (k.ALL, -1)


def ordered(column: Column, kind: Type) -> Array:
    """Return numbers as int64 in the same order, with codes for missing and NaN; texts are coded elsewhere."""
    values, valid = parts(column)
    assert not isinstance(values, Text)
    if kind in ("float", "float32"):
        floats = values.astype(np.float64) + 0.0  # -0.0 becomes 0.0, to which it is equal
        bits = floats.view(np.int64)
        out: Array = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        out[np.isnan(floats)] = k.NAN
    else:
        out = values.astype(np.int64)
    if valid is not None:
        out = np.where(valid, out, k.NULL)
    return out
