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

    asked: frozenset[str]  #: those that it looks at
    made: frozenset[str] = frozenset()  #: those that its main output has from itself
    passes: bool = True  #: whether its outputs have the others from its input


Looked = Callable[[Step, Schema], Uses | None]  #: what a step uses of its input; None where that is all of it


def columns_used(flow: Flow, step: str, port: str, looked: Looked) -> set[str]:
    """Return which columns of a stream any of its readers uses."""
    used: set[str] = set()
    for reader in flow.readers_of(step, port):
        used |= columns_used_by(flow, reader, flow.steps[step].outputs[port], looked)
    return used


def columns_used_by(flow: Flow, reader: Step, given: Schema, looked: Looked) -> set[str]:
    """Return which columns of what it is given a step uses, or anyone behind it."""
    uses = looked(reader, given)
    if uses is None:
        return set(given)
    used = set(uses.asked)
    if uses.passes:
        for number, port in enumerate(reader.outputs):
            later = columns_used(flow, reader.name, port, looked)
            used |= later if number else later - uses.made
    return used & set(given)


def by_expressions(step: Step, given: Schema) -> Uses | None:
    """Look through steps that are expressions alone."""
    match step.kind:
        case Filter(condition) | Split(condition):
            asked, made, passes = [condition], frozenset[str](), True
        case Select(columns, keep):
            asked, made, passes = [expr for _, expr in columns], frozenset(name for name, _ in columns), keep
        case _:
            return None
    if not all(_cannot_break(expr, given) for expr in asked):
        return None
    return Uses(_read_by(asked), made, passes)


def by_declaration(step: Step, given: Schema) -> Uses | None:
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
            asked = [aggregate.of for _, aggregate in aggregates if aggregate.of is not None]
            if not all(_cannot_break(expr, given) for expr in asked):
                return None
            made = frozenset(next(iter(step.outputs.values()))).difference(keys)  # late records pass as they are
            return Uses(_read_by(asked).union(keys, () if time is None else (time,)), made)
    return by_expressions(step, given)


def _read_by(expressions: Iterable[Expr]) -> frozenset[str]:
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
