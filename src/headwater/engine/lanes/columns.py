"""Which columns move between lanes: those that somebody uses where they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.schema import Schema
from headwater.flow.flow import Flow
from headwater.flow.pruning import by_declaration, columns_used_by
from headwater.flow.steps import OutputName

if TYPE_CHECKING:
    from headwater.engine.lanes.layout import Move


def pruned(flow: Flow, moves: list[Move]) -> dict[OutputName, Schema]:
    """Leave behind what nobody uses where records move, and return the columns of streams that have fewer for it."""
    schemas: dict[OutputName, Schema] = {}
    by_reader = {reader: move for move in moves for reader in move.readers}
    for step in flow.in_order():
        missing: set[str] = set()  #: of all columns that it was to be given
        for port, edge in enumerate(step.inputs):
            schema = schemas.get((edge.step, edge.port), edge.schema)
            move = by_reader.get((step.name, port))
            if move is not None and not move.columns:
                move.columns = _needed(flow, move, schema)
            missing |= set(edge.schema) - set(schema if move is None else move.columns)
        uses = by_declaration(step, step.inputs[0].schema) if missing else None
        if uses is not None:
            for number, (output, schema) in enumerate(step.outputs.items()):
                absent = missing if number else missing - uses.computes
                schemas[step.name, output] = schema.only(tuple(name for name in schema if name not in absent))
    return schemas


def _needed(flow: Flow, move: Move, schema: Schema) -> tuple[str, ...]:
    """Return which columns a moving stream takes along; one at least."""
    used = {*move.keys} | ({move.time.column} if move.time is not None else set())
    for name, _ in move.readers:
        used |= columns_used_by(flow, flow.steps[name], move.edge.schema, by_declaration)
    return tuple(name for name in schema if name in used) or tuple(schema)[:1]
