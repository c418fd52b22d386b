"""Which columns of a file a flow looks at: the others need not be read.

Filters, splits and selects say which columns they use. They are looked through as long as nothing in them can break, since
a dead letter holds the whole of its record; any other step is given all columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.schema import Schema
from headwater.flow.expr import Call, Expr
from headwater.flow.flow import Flow
from headwater.flow.steps import Filter, Select, Split, Step
from headwater.spark.columns import SPARK_TYPES


def columns_used(flow: Flow, source: str) -> tuple[str, ...]:
    """Return the columns of a source that its readers use, in its order; at least one, to tell how many records there are.

    >>> from headwater import Flow, col, io
    >>> flow = Flow("low")
    >>> levels = flow.read("levels", io.Items([{"tank": "a", "height": 1.5, "note": ""}]))
    >>> levels.filter("low", col.height < 2).select("tanks", "tank").write("out", io.Discard())
    >>> columns_used(flow, "levels")
    ('tank', 'height')
    """
    schema = flow.steps[source].outputs["out"]
    used = _used(flow, source, "out", schema)
    return tuple(name for name in schema if name in used) or tuple(schema)[:1]


def _used(flow: Flow, step: str, port: str, schema: Schema) -> set[str]:
    """Return which columns of a stream any of its readers uses."""
    used: set[str] = set()
    for reader in flow.readers_of(step, port):
        used |= _used_by(flow, reader, schema)
    return used


def _used_by(flow: Flow, reader: Step, schema: Schema) -> set[str]:
    match reader.kind:
        case Filter(condition) | Split(condition):
            asked, made, passes = [condition], set[str](), True
        case Select(columns, keep):
            asked, made, passes = [expr for _, expr in columns], {name for name, _ in columns}, keep
        case _:
            return set(schema)
    if not all(_cannot_break(expr, schema) for expr in asked):
        return set(schema)
    used = _read_by(asked)
    if passes:
        for port, after in reader.outputs.items():
            used |= _used(flow, reader.name, port, after) - made
    return used


def _read_by(expressions: Iterable[Expr]) -> set[str]:
    return {name for expr in expressions for name in expr.columns()}


def _cannot_break(expr: Expr, schema: Schema) -> bool:
    """Say whether an expression has a value for any record: powers of whole numbers and numbers in text may have none."""
    if expr.type_in(schema) not in SPARK_TYPES:
        return False
    if not isinstance(expr, Call):
        return True
    if expr.name == "pow" or (expr.name == "cast" and expr.args[0].type_in(schema) == "text"):
        return False
    return all(_cannot_break(arg, schema) for arg in expr.args)
