"""The matcher of plain sequences: an attempt for each stage of a key at most."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton
from headwater.cep.kernels import sequence as k
from headwater.cep.matchers.comparison import Comparisons
from headwater.cep.matchers.compiled import COMPACT_ROWS, CompiledMatcher
from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.operators.chunk import Chunk


class SequenceMatcher(CompiledMatcher):
    """Matches sequences: at most one attempt per stage and key, so there is nothing to bound."""

    evicted = 0

    def __init__(self, automaton: Automaton, tables: Comparisons, attributes: tuple[s.Attribute, ...]) -> None:
        super().__init__(automaton, tables, attributes)
        self._stages = len(self._sides)
        self._rows = np.full((0, self._stages, self._stages), -1, np.int64)
        self._first = np.zeros((0, self._stages), np.int64)
        self._armed = np.zeros(0, np.int64)
        self._clock = -(2**62)

    @property
    def live(self) -> int:
        """The number of partial matches."""
        return int((self._rows[:, 1:, 0] >= 0).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept, room to grow included."""
        return int(self._rows.nbytes + self._first.nbytes + self._armed.nbytes) + self.store.nbytes

    def holding(self) -> Array:
        """Return which keys hold anything: an attempt that is not too old yet, or the memory of a match."""
        waiting = self._rows[:, :, 0] >= 0
        if self.within >= 0:
            waiting &= self._first >= self._clock - self.within
        done = np.zeros(len(self._armed), np.bool_) if self.every else self._armed == 2
        mask: Array = waiting.any(axis=1) | done
        return mask

    def reserve(self, slots: int) -> None:
        """Make room for this many keys."""
        if slots > len(self._armed):
            more = max(slots, 2 * len(self._armed), 16) - len(self._armed)
            self._rows = np.concatenate([self._rows, np.full((more, self._stages, self._stages), -1, np.int64)])
            self._first = np.concatenate([self._first, np.zeros((more, self._stages), np.int64)])
            self._armed = np.concatenate([self._armed, np.zeros(more, np.int64)])

    def process(self, chunk: Chunk) -> list[Batch]:
        """Return the matches that the records complete, in order."""
        self._tidy()
        passes = self.passes(chunk)
        base = self.keep(chunk)
        out = np.empty((chunk.length, self._stages), np.int64)
        t = self._tables
        n = k.match(  # type: ignore[no-untyped-call]
            base, self.store.values, chunk.times, chunk.slots, passes, t.conditions, t.bounds, self.every, self.within,
            self._rows, self._first, self._armed, out,
        )  # fmt: skip
        return [self.results(out[:n])] if n else []

    def advance(self, time: int) -> list[Batch]:
        """Let time pass, so that attempts grow too old."""
        self._clock = max(self._clock, time)
        return []

    def _tidy(self) -> None:
        if self.store.length > COMPACT_ROWS:
            state = self.save(np.arange(len(self._armed)))
            self.store = self._new_store()
            self._rows[:] = -1
            self.load(state, np.arange(len(self._armed)))

    def save(self, slots: Array) -> dict[str, Any]:
        """Return the attempts of these keys as plain arrays."""
        valid = self._rows[slots]
        waiting = valid[:, :, :1] >= 0
        places = np.arange(self._stages)
        valid = np.where(waiting & (places[None, None, :] < places[None, :, None]), valid, -1)
        records, rows = self.save_records(valid)
        return {"records": records, "taken": rows, "first": self._first[slots], "armed": self._armed[slots]}

    def load(self, state: dict[str, Any], slots: Array) -> None:
        """Put saved attempts into these keys."""
        if len(slots):
            self.reserve(int(slots.max()) + 1)
            self._rows[slots] = self.restore_records(state["records"], state["taken"])
            self._first[slots] = state["first"]
            self._armed[slots] = state["armed"]
