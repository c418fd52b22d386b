"""The matcher of plain patterns: partial matches found by the value their next record must have."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton
from headwater.cep.kernels import pattern as k
from headwater.cep.kernels import waiting as w
from headwater.cep.matchers.comparison import Comparisons
from headwater.cep.matchers.compiled import COMPACT_ROWS, PlainMatcher
from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array
from headwater.operators.chunk import Chunk

_ROOM = 1024


class PatternMatcher(PlainMatcher):
    """At most `cap` partial matches over all keys; the one that began first is evicted first."""

    def __init__(self, automaton: Automaton, tables: Comparisons, wanted: tuple[s.Attribute, ...], cap: int) -> None:
        super().__init__(automaton, tables, wanted)
        self._cap = cap
        self._held = 0  #: records that were in use when they were last tidied up
        self._stages = len(self._sides)
        self._armed = np.zeros(16, np.int64)
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
        self._found = np.empty(room, np.int64)

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
        arrays = (self._pool, self._rows, self._heads, self._tails, self._roots, self._marks, self._found, self._armed)
        return int(sum(array.nbytes for array in arrays)) + self.store.nbytes

    def holding(self) -> Array:
        """Return which keys hold anything: a partial match, or the memory of a match."""
        held = np.zeros(len(self._armed), np.bool_) if self.every else self._armed == 2
        held[self._pool[self._pool[:, w.STATE] >= 0, w.SLOT]] = True
        return held

    def reserve(self, slots: int) -> None:
        """Make room for this many keys."""
        if slots > len(self._armed):
            more = max(slots, 2 * len(self._armed)) - len(self._armed)
            self._armed = np.concatenate([self._armed, np.zeros(more, np.int64)])
            self._roots = np.concatenate([self._roots, np.full(more * self._stages, -1, np.int64)])
            self._marks = np.concatenate([self._marks, np.full((more * self._stages, 2), w.NULL, np.int64)])

    def process(self, chunk: Chunk) -> list[Batch]:
        """Return the matches that the records complete, in order."""
        passes = self.passes(chunk)
        useful: Array = np.asarray(passes.any(axis=0))
        last = int(chunk.times[-1])
        if not useful.all():
            chunk, passes = chunk.keep(useful), np.ascontiguousarray(passes[:, useful])
        found: list[Batch] = []
        if chunk.length:
            self._tidy()
            found = self._match(chunk, passes, self.keep(chunk))
        self.advance(last)
        return found

    def _match(self, chunk: Chunk, passes: Array, base: int) -> list[Batch]:
        t = self._tables
        results: list[Batch] = []
        room = chunk.length + 16
        at = 0
        while at < chunk.length:
            out = np.empty((room, self._stages), np.int64)
            at, n = k.match(  # type: ignore[no-untyped-call]
                at, chunk.length, base, self.store.values, chunk.times, chunk.slots, passes, t.conditions, t.bounds, t.index,
                self.every, self.within, self._cap, self._pool, self._rows, self._heads, self._tails, self._roots,
                self._armed, self._meta, self._marks, self._found, out,
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
            self._match(Chunk((), np.array([time]), np.zeros(1, np.int64), np.zeros((1, 2), np.int64)), nothing, 0)
        return []

    def _grow(self) -> None:
        old = self._pool.shape[0]
        room = min(2 * old, max(self._cap, 1)) if self._cap > old else 2 * old
        pool = np.full((room, k.FIELDS), -1, np.int64)
        pool[:old] = self._pool
        pool[old : room - 1, w.NEXT] = np.arange(old + 1, room)
        self._pool, self._meta[k.FREE] = pool, old
        self._rows = np.concatenate([self._rows, np.full((room - old, self._stages), -1, np.int64)])
        self._found = np.empty(room, np.int64)
        buckets = 1 << (2 * room - 1).bit_length()
        self._heads, self._tails = (np.full(buckets, -1, np.int64) for _ in range(2))
        order = np.flatnonzero(pool[:, w.STATE] >= 0)
        order = order[np.argsort(pool[order, w.CAME])]
        k.rehang(order, self._tables.index, self._pool, self._heads, self._tails)  # type: ignore[no-untyped-call]

    def _tidy(self) -> None:
        """Forget records that no partial match holds, once they are the greater part."""
        if self.store.length <= COMPACT_ROWS + 2 * self._held:
            return
        if self.store.texts > COMPACT_ROWS + 2 * self._held:
            self._start_over()
        else:
            self._renumber()
        self._held = self.store.length

    def _renumber(self) -> None:
        live = np.flatnonzero(self._pool[:, w.STATE] >= 0)
        taken = np.arange(self._stages) < self._pool[live, w.STATE][:, None]
        rows = np.where(taken, self._rows[live], 0)
        used = np.zeros(self.store.length, np.bool_)
        used[rows[taken]] = True
        self._rows[live] = np.where(taken, (np.cumsum(used) - 1)[rows], -1)
        self.store.keep(np.flatnonzero(used))

    def _start_over(self) -> None:
        """Begin with new texts too: most of those known are in no record any more."""
        armed = self._armed.copy()
        state = self.save(np.arange(len(armed)))
        self.store = self._new_store()
        self._rebuild([state])
        self._armed = armed

    def save(self, slots: Array) -> dict[str, Any]:
        """Return the partial matches of these keys as plain arrays; `slot` counts along `slots`."""
        of = np.full(len(self._armed), -1, np.int64)
        of[slots] = np.arange(len(slots))
        live = np.flatnonzero(self._pool[:, w.STATE] >= 0)
        live = live[of[self._pool[live, w.SLOT]] >= 0]
        live = live[np.argsort(self._pool[live, k.BORN])]
        stage = self._pool[live, w.STATE]
        taken = np.where(np.arange(self._stages) < stage[:, None], self._rows[live], -1)
        records, taken = self.saved_records(taken)
        return {
            "records": records,
            "taken": taken,
            "stage": stage,
            "slot": of[self._pool[live, w.SLOT]],
            "first": self._pool[live, k.FIRST],
            "entry": self._pool[live, w.CAME],
            "armed": self._armed[slots],
        }

    def load(self, saved: dict[str, Any], slots: Array) -> None:
        """Add saved partial matches; `slots` are the keys that theirs have here."""
        if not len(slots):
            return
        self.reserve(int(slots.max()) + 1)
        own = self.save(np.arange(len(self._armed)))
        armed = self._armed.copy()
        armed[slots] = saved["armed"]
        self.store = self._new_store()
        self._rebuild(
            [own, {**saved, "slot": slots[saved["slot"]], "entry": saved["entry"] + int(self._meta[k.ARRIVALS])}]
        )
        self._armed = armed

    def _rebuild(self, states: list[dict[str, Any]]) -> None:
        """Start with these partial matches, the one that began first being the oldest."""
        offsets = np.cumsum([0, *(state["records"].length for state in states)])
        taken = np.concatenate(
            [np.where(s["taken"] >= 0, s["taken"] + o, -1) for s, o in zip(states, offsets, strict=False)]
        )
        joined = {n: np.concatenate([s[n] for s in states]) for n in ("stage", "slot", "first", "entry")}
        order = np.argsort(joined["first"], kind="stable")
        taken, joined = taken[order], {name: array[order] for name, array in joined.items()}
        self._empty(max(_ROOM, 1 << (len(order) - 1).bit_length() if len(order) else 0))
        records = concat_batches(
            [state["records"] for state in states if state["records"].length] or [states[0]["records"]]
        )
        taken = self.restore_records(records, taken)
        by_entry = np.argsort(joined["entry"], kind="stable")
        entries = np.empty_like(by_entry)
        entries[by_entry] = np.arange(len(by_entry))
        t = self._tables
        k.plant(  # type: ignore[no-untyped-call]
            joined["slot"], joined["first"], joined["stage"], entries, taken, self.store.values, t.conditions, t.index,
            self._pool, self._rows, self._roots, self._meta,
        )  # fmt: skip
        self._meta[k.ARRIVALS] = len(by_entry)
        k.rehang(by_entry, t.index, self._pool, self._heads, self._tails)  # type: ignore[no-untyped-call]
