"""Windows of processing time: those of event time, over the moments at which records come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headwater.clock import latest_ns
from headwater.data.batch import END, Batch
from headwater.data.schema import Schema
from headwater.flow.steps import WindowAggregate
from headwater.flow.windows import Count
from headwater.operators.broken import as_list
from headwater.operators.operator import Operator, Output, Select
from headwater.operators.snapshot import packed, unpacked

_AT = "\0at"  #: the column that the windows go by: no user's column has such a name


class ProcessingTimeOperator(Operator):
    """Stamps records with the time at which they come, which never runs back, and closes windows by the clock.

    The runner calls `tick` now and then, so that windows close although no record comes.
    """

    stateless = False

    def __init__(
        self,
        kind: WindowAggregate,
        given: Schema,
        make: Callable[[WindowAggregate, Schema], Operator],
        now_us: Callable[[], int] = lambda: latest_ns() // 1000,
    ) -> None:
        assert not isinstance(kind.window, Count)
        window = replace(kind.window, time="event")
        self._inner = make(replace(kind, window=window, time=_AT), given.with_fields({_AT: "time"}))
        self._clock, self._now_us = now_us, 0

    def process(self, batch: Batch, port: int) -> Output:
        """Close the windows whose time is up, and take the records into those that are open."""
        closed = self.tick()
        at = np.full(batch.length, self._now_us, np.int64)
        stamped = Batch({**batch.columns, _AT: at}, batch.length, batch.stamps)
        return [*as_list(closed), *as_list(self._inner.process(stamped, port))]

    def tick(self) -> Output:
        """Close the windows whose time is up."""
        self._now_us = max(self._now_us, self._clock())
        return self._inner.advance(self._now_us)

    def advance(self, watermark: int) -> Output:
        """Close all windows at the end; event time is not theirs."""
        return self._inner.advance(END) if watermark == END else None

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the windows that are open, and how far the time has come."""
        return packed("processing time", {"windows": self._inner.snapshot(select), "now": self._now_us})

    def restore(self, data: bytes) -> None:
        """Take over windows that were open; they close when their time is up, at once if it is."""
        saved = unpacked("processing time", data)
        self._now_us = max(self._now_us, saved["now"])
        self._inner.restore(saved["windows"])

    def forget(self, select: Select) -> None:
        """Drop the chosen keys."""
        self._inner.forget(select)
