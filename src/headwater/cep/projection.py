"""The columns of a result: expressions over what a window, match or join gives, and a last condition."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.flow.batch import Batch
from headwater.flow.expr import Expr
from headwater.flow.schema import Schema
from headwater.operators.expression import compiled, compiled_mask


@dataclass(frozen=True)
class Projection:
    """`select … having …` over batches of `given`."""

    given: Schema
    columns: tuple[tuple[str, Expr], ...]
    out: Schema
    having: Expr | None = None  #: over the result's own columns

    def runner(self) -> Runner:
        """Return the running form."""
        return Runner(self)


class Runner:
    """A projection at work."""

    def __init__(self, projection: Projection) -> None:
        self._columns = [(name, compiled(expr, projection.given)) for name, expr in projection.columns]
        having = projection.having
        self._having = compiled_mask(having, projection.out) if having is not None else None

    def run(self, batch: Batch) -> Batch | None:
        """Return the result, or None when nothing is left."""
        if not batch.length:
            return None
        out = batch.of_columns({name: read(batch) for name, read in self._columns})
        if self._having is not None:
            out = out.filter(self._having(out))
        return out if out.length else None
