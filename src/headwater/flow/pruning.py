"""Which columns of a stream anybody looks at: the others need not be read, or carried along.

Filters, splits and selects say which columns they use, and so do windows and scans that declare it (`Scan`). They are
looked through as long as nothing in them can break, since a dead letter holds the whole of its record; any other step is
given all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.data.schema import Schema
from headwater.flow.expr import Call, Expr
from headwater.flow.flow import Flow
from headwater.flow.state import makes_of, reads_of
from headwater.flow.steps import Filter, KeyedScan, Select, Split, Step, Union, WindowAggregate


@dataclass(frozen=True, slots=True)
class Uses:
    """What a step uses of the columns it is given."""

    reads: frozenset[str]  #: those that it looks at
    computes: frozenset[str] = frozenset()  #: those that its main output has from itself
    passes: bool = True  #: whether its outputs have the others from its input


Inspect = Callable[[Step, Schema], Uses | None]  #: what a step uses of its input; None where that is all of it


def columns_used(flow: Flow, step: str, port: str, inspect: Inspect) -> set[str]:
    """Return which columns of a stream any of its readers uses."""
    used: set[str] = set()
    for reader in flow.readers_of(step, port):
        used |= columns_used_by(flow, reader, flow.steps[step].outputs[port], inspect)
    return used


def columns_used_by(flow: Flow, reader: Step, schema: Schema, inspect: Inspect) -> set[str]:
    """Return which columns of what it is given a step uses, or anyone behind it."""
    uses = inspect(reader, schema)
    if uses is None:
        return set(schema)
    used = set(uses.reads)
    if uses.passes:
        for number, port in enumerate(reader.outputs):
            later = columns_used(flow, reader.name, port, inspect)
            used |= later if number else later - uses.computes
    return used & set(schema)


def by_expressions(step: Step, schema: Schema) -> Uses | None:
    """Look through steps that are expressions alone."""
    match step.kind:
        case Filter(condition) | Split(condition):
            expressions, computed, passes = [condition], frozenset[str](), True
        case Select(columns, keep):
            expressions, computed, passes = [expr for _, expr in columns], frozenset(name for name, _ in columns), keep
        case _:
            return None
    if not all(_cannot_break(expr, schema) for expr in expressions):
        return None
    return Uses(_columns_of(expressions), computed, passes)


def by_declaration(step: Step, schema: Schema) -> Uses | None:
    """Look through steps that are expressions, and those with state that say what they read.

    These have an answer for records whose columns all have values; who leaves columns away makes sure of that.
    """
    match step.kind:
        case Union():
            return Uses(frozenset())
        case KeyedScan(keys=keys, scan=scan):
            reads, makes = reads_of(scan), makes_of(scan)
            return None if reads is None or makes is None else Uses(reads.union(keys), makes)
        case WindowAggregate(keys=keys, aggregates=aggregates, time=time):
            expressions = [aggregate.of for _, aggregate in aggregates if aggregate.of is not None]
            if not all(_cannot_break(expr, schema) for expr in expressions):
                return None
            computed = frozenset(next(iter(step.outputs.values()))).difference(keys)  # late records pass as they are
            return Uses(_columns_of(expressions).union(keys, () if time is None else (time,)), computed)
    return by_expressions(step, schema)


def _columns_of(expressions: Iterable[Expr]) -> frozenset[str]:
    return frozenset(name for expr in expressions for name in expr.columns())


def _cannot_break(expr: Expr, schema: Schema) -> bool:
    """Say whether an expression has a value for any record: powers of whole numbers and numbers in text may have none."""
    if expr.type_in(schema) == "any":
        return False
    if not isinstance(expr, Call):
        return True
    if expr.name == "pow" or (expr.name == "cast" and expr.args[0].type_in(schema) == "text"):
        return False
    return all(_cannot_break(arg, schema) for arg in expr.args)
