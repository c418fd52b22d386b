"""The matcher of plain patterns: partial matches found by the value their next record must have."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton
from headwater.cep.kernels import pattern as k
from headwater.cep.kernels import waiting as w
from headwater.cep.matchers.comparison import Comparisons
from headwater.cep.matchers.compiled import PooledMatcher
from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.operators.chunk import Chunk

_ROOM = 1024


class PatternMatcher(PooledMatcher):
    """At most `cap` partial matches over all keys; the one that began first is evicted first."""

    _columns = (w.STATE, w.SLOT, k.BORN)

    def __init__(
        self,
        automaton: Automaton,
        tables: Comparisons,
        attributes: tuple[s.Attribute, ...],
        cap: int,
        *,
        by_key: bool = False,
    ) -> None:
        """`by_key` when each key has a time of its own; then the time of a record says nothing of other keys."""
        super().__init__(automaton, tables, attributes)
        self._cap, self._by_key = cap, by_key
        self._stages = len(self._sides)
        self._armed = np.zeros(16, np.int64)
        self._begun = np.zeros(16, np.int64)  #: of a key whose pattern is armed, when its attempt began
        self._meta = np.zeros(k.META, np.int64)
        self._empty()

    def _empty(self, room: int = _ROOM) -> None:
        self._pool = np.full((room, k.FIELDS), -1, np.int64)
        self._rows = np.full((room, self._stages), -1, np.int64)
        self._pool[: room - 1, w.NEXT] = np.arange(1, room)
        evicted = self._meta[k.EVICTED]
        self._meta[:] = 0
        self._meta[[k.OLDEST, k.YOUNGEST]] = -1
        self._meta[k.EVICTED] = evicted
        self._heads, self._tails = (np.full(2 * room, -1, np.int64) for _ in range(2))
        self._roots = np.full(len(self._armed) * self._stages, -1, np.int64)
        self._marks = np.full((len(self._roots), 2), w.NULL, np.int64)
        self._candidates = np.empty(room, np.int64)

    @property
    def live(self) -> int:
        """The number of partial matches."""
        return int(self._meta[k.LIVE])

    @property
    def evicted(self) -> int:
        """How many partial matches went because of the cap."""
        return int(self._meta[k.EVICTED])

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept, room to grow included."""
        arrays = (
            self._pool,
            self._rows,
            self._heads,
            self._tails,
            self._roots,
            self._marks,
            self._candidates,
            self._armed,
        )
        return int(sum(array.nbytes for array in arrays)) + self.store.nbytes

    def holding(self) -> Array:
        """Return which keys hold anything: a partial match, or the memory of a match."""
        mask = np.zeros(len(self._armed), np.bool_) if self.every else self._armed == 2
        mask[self._pool[self._pool[:, w.STATE] >= 0, w.SLOT]] = True
        return mask

    def reserve(self, slots: int) -> None:
        """Make room for this many keys."""
        if slots > len(self._armed):
            more = max(slots, 2 * len(self._armed)) - len(self._armed)
            self._armed = np.concatenate([self._armed, np.zeros(more, np.int64)])
            self._begun = np.concatenate([self._begun, np.zeros(more, np.int64)])
            self._roots = np.concatenate([self._roots, np.full(more * self._stages, -1, np.int64)])
            self._marks = np.concatenate([self._marks, np.full((more * self._stages, 2), w.NULL, np.int64)])

    def process(self, chunk: Chunk) -> list[Batch]:
        """Return the matches that the records complete, in order."""
        passes = self.passes(chunk)
        useful: Array = np.asarray(passes.any(axis=0))
        if not useful.all():
            chunk, passes = chunk.keep(useful), np.ascontiguousarray(passes[:, useful])
        if not chunk.length:
            return []
        self._tidy()
        return self._match(chunk, passes, self.keep(chunk), for_all=not self._by_key)

    def _match(self, chunk: Chunk, passes: Array, base: int, *, for_all: bool) -> list[Batch]:
        t = self._tables
        results: list[Batch] = []
        room = chunk.length + 16
        at = 0
        while at < chunk.length:
            out = np.empty((room, self._stages), np.int64)
            at, n = k.match(  # type: ignore[no-untyped-call]
                at, chunk.length, base, self.store.values, chunk.times, chunk.slots, passes, t.conditions, t.bounds, t.index,
                self.every, self.within, for_all, self._cap, self._pool, self._rows, self._heads, self._tails, self._roots,
                self._armed, self._begun, self._meta, self._marks, self._candidates, out,
            )  # fmt: skip
            if n:
                results.append(self.results(out[:n]))
            if at < chunk.length:
                room = max(room, int(self._meta[k.LAST_WAITING]) + chunk.length)
                if self.live >= self._pool.shape[0]:
                    self._grow()
        return results

    def advance(self, time: int) -> list[Batch]:
        """Give up what has become too old."""
        if self.within >= 0:
            # one record that suits no stage: time is all it brings
            nothing = np.zeros((self._stages, 1), np.bool_)
            record = Chunk((), np.array([time]), np.zeros(1, np.int64), np.zeros((1, 2), np.int64))
            self._match(record, nothing, 0, for_all=True)
        return []

    def _grow(self) -> None:
        old = self._pool.shape[0]
        room = min(2 * old, max(self._cap, 1)) if self._cap > old else 2 * old
        pool = np.full((room, k.FIELDS), -1, np.int64)
        pool[:old] = self._pool
        pool[old : room - 1, w.NEXT] = np.arange(old + 1, room)
        self._pool, self._meta[k.FREE] = pool, old
        self._rows = np.concatenate([self._rows, np.full((room - old, self._stages), -1, np.int64)])
        self._candidates = np.empty(room, np.int64)
        buckets = 1 << (2 * room - 1).bit_length()
        self._heads, self._tails = (np.full(buckets, -1, np.int64) for _ in range(2))
        order = np.flatnonzero(pool[:, w.STATE] >= 0)
        order = order[np.argsort(pool[order, w.CAME])]
        k.rehang(order, self._tables.index, self._pool, self._heads, self._tails)  # type: ignore[no-untyped-call]

    def _record_rows(self, attempts: Array) -> Array:
        return np.where(np.arange(self._stages) < self._pool[attempts, w.STATE][:, None], self._rows[attempts], -1)

    def _start_over(self) -> None:
        armed = self._armed.copy()
        self._rebuild([self.save(np.arange(len(armed)))])
        self._armed = armed

    def save(self, slots: Array) -> dict[str, Any]:
        """Return the partial matches of these keys as plain arrays; `slot` counts along `slots`."""
        live, state = self._save_attempts(slots, len(self._armed))
        fields = {"stage": w.STATE, "first": k.FIRST, "came": w.CAME}
        return {**state, **{name: self._pool[live, at] for name, at in fields.items()}, "armed": self._armed[slots]}

    def load(self, state: dict[str, Any], slots: Array) -> None:
        """Add saved partial matches; `slots` are the keys that theirs have here."""
        if not len(slots):
            return
        self.reserve(int(slots.max()) + 1)
        current = self.save(np.arange(len(self._armed)))
        armed = self._armed.copy()
        armed[slots] = state["armed"]
        later = {"slot": slots[state["slot"]], "came": state["came"] + int(self._meta[k.ARRIVALS])}
        self._rebuild([current, {**state, **later}])
        self._armed = armed

    def _rebuild(self, states: list[dict[str, Any]]) -> None:
        """Start with these partial matches, the one that began first being the oldest."""
        rows, fields = self._merge_states(states, ("stage", "slot", "first", "came"))
        order = np.argsort(fields["first"], kind="stable")
        rows, fields = rows[order], {name: array[order] for name, array in fields.items()}
        self._empty(max(_ROOM, 1 << (len(order) - 1).bit_length() if len(order) else 0))
        by_arrival = np.argsort(fields["came"], kind="stable")
        ranks = np.empty_like(by_arrival)
        ranks[by_arrival] = np.arange(len(by_arrival))
        t = self._tables
        k.plant(  # type: ignore[no-untyped-call]
            fields["slot"], fields["first"], fields["stage"], ranks, rows, self.store.values, t.conditions, t.index,
            self._pool, self._rows, self._roots, self._begun, self._meta,
        )  # fmt: skip
        self._meta[k.ARRIVALS] = len(by_arrival)
        k.rehang(by_arrival, t.index, self._pool, self._heads, self._tails)  # type: ignore[no-untyped-call]
