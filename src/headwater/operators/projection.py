"""The columns of a result: expressions over what a window, match or join gives, and a last condition."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.expr import Expr
from headwater.operators.expression import compile_expression, compile_mask
from headwater.operators.operator import compute_or_reject


@dataclass(frozen=True)
class Projection:
    """`select … having …` over batches of `schema`."""

    schema: Schema
    columns: tuple[tuple[str, Expr], ...]
    out: Schema
    having: Expr | None = None  #: over the result's own columns

    def runner(self, step: str) -> Runner:
        """Return the running form, for a step of this name."""
        return Runner(self, step)


class Runner:
    """A projection at work."""

    def __init__(self, projection: Projection, step: str) -> None:
        self._step = step
        self._columns = [(name, compile_expression(expr, projection.schema)) for name, expr in projection.columns]
        having = projection.having
        self._having = compile_mask(having, projection.out) if having is not None else None

    def run(self, batch: Batch) -> tuple[Batch | None, Batch | None]:
        """Return the result, None when nothing is left, and dead letters for what has no result, None when all have one."""
        if not batch.length:
            return None, None
        batch, out, letters = compute_or_reject(self._select, batch, self._step)
        return out if out.length else None, letters

    def _select(self, batch: Batch) -> Batch:
        out = batch.of_columns({name: compute(batch) for name, compute in self._columns})
        return out if self._having is None else out.filter(self._having(out))
