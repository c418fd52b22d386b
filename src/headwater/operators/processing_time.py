"""Windows of processing time: those of event time, over the moments at which records come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from headwater.clock import latest_ns, now_ns
from headwater.data.batch import END, Batch
from headwater.data.schema import Schema
from headwater.flow.steps import WindowAggregate
from headwater.flow.windows import Count
from headwater.operators.fault_isolation import as_list
from headwater.operators.operator import Operator, Output, Select
from headwater.operators.snapshot import pack_state, unpack_state

_AT = "\0at"  #: the column that the windows go by: no user's column has such a name


class ProcessingTimeOperator(Operator):
    """Stamps records with the time at which they come, and closes windows by the clock.

    That time never runs back and never stands still: after a clock that was set forward is set back, it runs on from where
    it had come to.

    The runner calls `tick` now and then, so that windows close although no record comes.
    """

    stateless = False

    def __init__(
        self,
        kind: WindowAggregate,
        schema: Schema,
        make: Callable[[WindowAggregate, Schema], Operator],
        now_us: Callable[[], int] = lambda: latest_ns() // 1000,
        steady_us: Callable[[], int] = lambda: now_ns() // 1000,
    ) -> None:
        """`now_us` tells the moment by a clock that may be set, `steady_us` by one that nobody sets."""
        assert not isinstance(kind.window, Count)
        window = replace(kind.window, time="event")
        self._make = partial(make, replace(kind, window=window, time=_AT), schema.with_fields({_AT: "time"}))
        self._inner = self._make()
        self._clock, self._steady = now_us, steady_us
        self._now_us, self._last_us = 0, steady_us()

    def process(self, batch: Batch, port: int) -> Output:
        """Close the windows whose time is up, and take the records into those that are open."""
        results = self.tick()
        at = np.full(batch.length, self._now_us, np.int64)
        with_time = Batch({**batch.columns, _AT: at}, batch.length, batch.stamps)
        return [*as_list(results), *as_list(self._inner.process(with_time, port))]

    def tick(self) -> Output:
        """Close the windows whose time is up."""
        steady_us = self._steady()
        self._now_us = max(self._now_us + steady_us - self._last_us, self._clock())
        self._last_us = steady_us
        return self._inner.advance(self._now_us)

    def advance(self, watermark: int) -> Output:
        """Close all windows at the end; event time is not theirs.

        What a later run brings before their time is up has windows of its own: it is not late.
        """
        if watermark < END:
            return None
        closing, self._inner = self._inner, self._make()
        return closing.advance(END)

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the windows that are open, and how far the time has come."""
        return pack_state("processing time", {"windows": self._inner.snapshot(select), "now": self._now_us})

    def restore(self, data: bytes) -> None:
        """Take over windows that were open; they close when their time is up, at once if it is."""
        state = unpack_state("processing time", data)
        self._now_us = max(self._now_us, state["now"])
        self._inner.restore(state["windows"])

    def forget(self, select: Select) -> None:
        """Drop the chosen keys."""
        self._inner.forget(select)
