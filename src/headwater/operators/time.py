"""Event time: reads it from a column, moves the watermark, sets bad clocks apart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from headwater.clock import BUILT_NS, latest_ns
from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.column import Array, Column, Nullable
from headwater.data.timestamps import FIRST_US
from headwater.flow.duration import duration_text
from headwater.flow.steps import EventTime
from headwater.operators.operator import DEAD, Operator, Output, dead_letters
from headwater.operators.snapshot import pack_state, unpack_state

log = logging.getLogger(__name__)

_ANY_TIME = END - 1
_ENOUGH_TO_DOUBT = 100  #: records, all ahead of the machine's clock, that make its own time the likely slip


class EventTimeOperator(Operator):
    """Stamps each batch with a watermark: the newest time seen, less the lateness allowed."""

    stateless = False

    def __init__(self, kind: EventTime, step: str, now_us: Callable[[], int] = lambda: latest_ns() // 1000) -> None:
        self._kind, self._step, self._now_us = kind, step, now_us
        self._watermark = NO_WATERMARK
        self._warned = False
        self._only_ahead: int | None = 0  #: how many records came so far, while all of them were ahead of our clock

    def process(self, batch: Batch, port: int) -> Output:
        """Return the batch with its watermark; records without time or from the future are dead letters."""
        bad, why = self.bad(batch)
        good = batch if bad is None else batch.filter(~bad)
        outputs = [(0, part) for part in self._stamp(good)]
        if bad is None and len(outputs) == 1:
            return outputs[0][1]
        if bad is not None:
            outputs.append((DEAD, dead_letters(self._step, why, batch.filter(bad))))
        return outputs

    def _stamp(self, batch: Batch) -> list[Batch]:
        """Return the batch with its watermark, cut before each record that is behind the watermark by then.

        So it depends on the order of records alone whether one is late, and not on how they were batched.
        """
        if not batch.length:
            return []
        columns = _without_nulls(batch.columns, self._kind.column)
        whole = Batch(columns, batch.length, batch.stamps)
        times: Array = columns[self._kind.column]  # type: ignore[assignment]
        newest = np.maximum.accumulate(times) - self._kind.lateness_us
        before = np.concatenate([[self._watermark], np.maximum(newest[:-1], self._watermark)])
        behind = np.flatnonzero(times < before)
        cuts = [0, *behind[behind > 0].tolist(), batch.length]
        parts = []
        for start, stop in pairwise(cuts):
            self._watermark = max(self._watermark, int(newest[stop - 1]))
            part = whole if len(cuts) == 2 else whole.slice(start, stop)
            part.watermark = self._watermark
            parts.append(part)
        return parts

    def bad(self, batch: Batch) -> tuple[Array | None, list[str]]:
        """Return which records have no time, or one that cannot be right, and why; None where all are good."""
        column = batch.columns[self._kind.column]
        missing = ~column.valid if isinstance(column, Nullable) else None
        times: Array = column.values if isinstance(column, Nullable) else column  # type: ignore[assignment]
        limit = self._limit_us()
        ahead, before = times > limit, times < FIRST_US
        self._doubt_own_clock(ahead, times - limit)
        if missing is None and not ahead.any() and not before.any():
            return None, []
        if missing is not None:
            ahead &= ~missing
            before &= ~missing
        bad = ahead | before if missing is None else ahead | before | missing
        names = self._kind.column, duration_text(self._kind.ahead_us)
        why = [
            f"event time {names[0]!r} is more than {names[1]} ahead of this machine's clock"
            if early
            else f"event time {names[0]!r} is before year 1"
            if old
            else f"no {names[0]!r}"
            for early, old in zip(ahead[bad].tolist(), before[bad].tolist(), strict=True)
        ]
        return bad, why

    def _limit_us(self) -> int:
        """Return the latest time that a record may have; any, while this machine's own clock cannot be right."""
        now_us = self._now_us()
        if now_us * 1000 >= BUILT_NS:
            return now_us + self._kind.ahead_us
        if not self._warned:
            self._warned = True
            log.warning(
                "step %s: this machine's clock is not set, so records are taken however far ahead they are", self._step
            )
        return _ANY_TIME

    def _doubt_own_clock(self, ahead: Array, by_us: Array) -> None:
        """Say so, once, if records come from the future and from nowhere else: then it is this clock that is wrong."""
        if self._only_ahead is None or not len(ahead):
            return
        self._only_ahead = self._only_ahead + len(ahead) if ahead.all() else None
        if self._only_ahead is not None and self._only_ahead >= _ENOUGH_TO_DOUBT:
            lead_s = (float(np.median(by_us)) + self._kind.ahead_us) / 1e6
            log.warning(
                "step %s: all records are %.0f s ahead of this machine's clock; is it slow?", self._step, lead_s
            )
            self._only_ahead = None

    def snapshot(self, select: object = None) -> bytes:
        """Save how far event time has come."""
        return pack_state("event time", {"watermark": self._watermark})

    def restore(self, data: bytes) -> None:
        """Go on from a saved watermark."""
        self._watermark = max(self._watermark, unpack_state("event time", data)["watermark"])


def _without_nulls(columns: dict[str, Column], name: str) -> dict[str, Column]:
    column = columns[name]
    return {**columns, name: column.values} if isinstance(column, Nullable) else columns
