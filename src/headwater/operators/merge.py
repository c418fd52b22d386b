"""The step that puts the results of several queries into one stream, in order of event time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.data.batch import Batch, concat_batches
from headwater.data.schema import Schema
from headwater.operators.arrivals import Arrivals
from headwater.operators.chunk import Chunk
from headwater.operators.operator import Operator, Output, Select
from headwater.operators.snapshot import pack_state, unpack_state

_KIND = "merged queries"


@dataclass(frozen=True)
class MergePlan:
    """Streams of one schema, each with its event time in the same column."""

    schema: Schema
    streams: int
    result_time: str
    step: str

    def __call__(self) -> MergeOperator:
        """Make a new operator."""
        return MergeOperator(self)

    @property
    def __name__(self) -> str:
        """What drawings call the step."""
        return f"merge {self.streams} queries"


class MergeOperator(Operator):
    """Holds records until the watermark has passed, so that their order does not depend on which query was faster."""

    stateless = False

    def __init__(self, plan: MergePlan) -> None:
        n = plan.streams
        self._arrivals = Arrivals((plan.schema,) * n, (plan.result_time,) * n, ((),) * n, plan.step)

    @property
    def nbytes(self) -> int:
        """Bytes of what waits."""
        return self._arrivals.nbytes

    def process(self, batch: Batch, port: int) -> Output:
        """Let records wait for their turn."""
        return self._arrivals.add(batch, port)[1] or None

    def advance(self, watermark: int) -> Output:
        """Return the records whose turn has come."""
        chunk, _ = self._arrivals.release(watermark)
        return _in_order(chunk) if chunk is not None else None

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save what waits."""
        return pack_state(_KIND, self._arrivals.save(select))

    def restore(self, data: bytes) -> None:
        """Take over what waited elsewhere."""
        self._arrivals.load(unpack_state(_KIND, data))

    def forget(self, select: Select) -> None:
        """Drop what waits."""
        self._arrivals.forget(select)


def _in_order(chunk: Chunk) -> Batch:
    places = [np.arange(chunk.length) if part.places is None else part.places for part in chunk.parts]
    return concat_batches([part.batch for part in chunk.parts]).take(np.argsort(np.concatenate(places)))
