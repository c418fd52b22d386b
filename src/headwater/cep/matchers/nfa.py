"""The matcher of chains with counts, `and`, `or` and absence: compiled, attempts found by the values they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Absence, Accept, Automaton, Pair, Stage, first_places, sides
from headwater.cep.kernels import nfa as k
from headwater.cep.kernels import records
from headwater.cep.kernels import waiting as w
from headwater.cep.matchers.comparison import Comparisons, compare
from headwater.cep.matchers.compiled import PooledMatcher
from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array
from headwater.flow.expr import Call, Expr
from headwater.operators.chunk import Chunk

_ROOM = 256
_MOST_STAGES = 62  #: of a sequence: a bit each
_MOST_KEPT = 64  #: records of one count that may be read by their number
_SAVED = {
    "stage": k.POS, "first": k.FIRST, "open": k.OPEN, "counted": k.COUNT, "passed": k.PASSED, "came": k.CAME,
    "deadline": k.DEADLINE, "born": k.BORN, "waits": k.WAITS,
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where an attempt keeps the records that somebody reads: of each event some of the first and some of the last."""

    firsts: dict[str, tuple[int, int]]  #: event → its first column, and how many
    lasts: dict[str, tuple[int, int]]
    width: int

    @classmethod
    def of(cls, automaton: Automaton, attributes: tuple[s.Attribute, ...]) -> Layout | None:
        """Return places for all that is wanted or compared, or None when that is too much."""
        reads = [*attributes, *(a for side in automaton.sides() for c in side.cross for a in c.earlier())]
        firsts: dict[str, tuple[int, int]] = {}
        lasts: dict[str, tuple[int, int]] = {}
        width = 0
        for take in automaton.accepts():
            of_it = [a.index or s.Index(True) for a in reads if a.ref == take.ref]
            for back, places in ((False, firsts), (True, lasts)):
                count = max((index.offset + 1 for index in of_it if index.back is back), default=0)
                places[take.ref] = (width, count)
                width += count
                if count > _MOST_KEPT:
                    return None
        return cls(firsts, lasts, width)

    def place_of(self, attribute: s.Attribute) -> int:
        """Return the column of the record that an attribute reads."""
        index = attribute.index or s.Index(True)
        return (self.lasts if index.back else self.firsts)[attribute.ref or ""][0] + index.offset


def nfa(automaton: Automaton, layout: Layout) -> Comparisons | None:
    """Return the tables of a chain, or None when only the interpreter can run it.

    That is one with `every` inside, a condition that is no comparison with one earlier record, or a very long sequence.
    """
    if any(first > 0 for first, _ in automaton.scopes) or (automaton.strict and len(automaton.stages) > _MOST_STAGES):
        return None
    if any(_minds_missing(condition.expr) for side in automaton.sides() for condition in side.cross):
        return None
    return compare(automaton, layout.place_of)


def _minds_missing(expr: Expr) -> bool:
    """Say whether a value can be there although the record it reads is not."""
    match expr:
        case Call("is_null" | "coalesce" | "when"):
            return True
        case Call(_, args):
            return any(map(_minds_missing, args))
    return False


def _plan(automaton: Automaton, tables: Comparisons, layout: Layout, cap: int) -> k.Plan:
    stages = np.zeros((len(automaton.stages), k.STAGE_FIELDS), np.int64)
    side_rows = np.zeros((len(automaton.sides()) + 1, k.SIDE_FIELDS), np.int64)
    places = first_places(automaton.stages)
    n = 0
    for i, stage in enumerate(automaton.stages):
        parts = sides(stage)
        waits = [side.wait_us for side in parts if isinstance(side, Absence) and side.wait_us is not None]
        least, most = (stage.least, stage.most) if isinstance(stage, Accept) else (1, 1)
        last = all(_optional(later) for later in automaton.stages[i + 1 :])
        upper = k.NONE if most is None else most
        stages[i] = (_kind(stage), n, len(parts), least, upper, waits[0] if waits else k.NONE, last, places[i])
        for bit, side in enumerate(parts, 1):
            ref = side.ref if isinstance(side, Accept) else ""
            side_rows[n] = (
                isinstance(side, Absence), bit, *layout.firsts.get(ref, (0, 0)), *layout.lasts.get(ref, (0, 0)),
                tables.bounds[n], tables.bounds[n + 1], *_index(tables.index[n]),
            )  # fmt: skip
            n += 1
    within = k.NONE if automaton.within_us is None else automaton.within_us
    until = automaton.scopes[0][1] if automaton.scopes else k.NONE
    rules = np.array([automaton.strict, until, within, cap, _links(automaton), places[-1]], np.int64)
    return k.Plan(stages, side_rows, tables.conditions, rules)


def _kind(stage: Stage) -> int:
    if isinstance(stage, Pair):
        return k.AND if stage.op == "and" else k.OR
    return k.ACCEPT if isinstance(stage, Accept) else k.ABSENT


def _optional(stage: Stage) -> bool:
    return isinstance(stage, Accept) and stage.least == 0


def _index(index: Array) -> tuple[int, int]:
    return (w.ALL, -1) if index[0] == w.UNLIKE else (int(index[0]), int(index[1]))


def _links(automaton: Automaton) -> int:
    """Return at how many sides an attempt can wait at once."""
    if automaton.strict:
        return 1
    most = 0
    for i, stage in enumerate(automaton.stages):
        count = len(sides(stage))
        if isinstance(stage, Accept):
            for later in automaton.stages[i + 1 :]:
                count += len(sides(later))
                if not _optional(later):
                    break
        most = max(most, count)
    return most


def _keys(count: int) -> Array:
    keys = np.zeros((count, k.KEY_FIELDS), np.int64)
    keys[:, [k.OLDEST_OF_KEY, k.YOUNGEST_OF_KEY]] = -1
    return keys


def _longer(array: Array, room: int) -> Array:
    return np.concatenate([array, np.full(room - len(array), -1, np.int64)])


class NfaMatcher(PooledMatcher):
    """At most `cap` attempts that have taken something, over all keys; the one that began first is evicted first."""

    _columns = (k.POS, k.KEY, k.BORN)

    def __init__(
        self, automaton: Automaton, tables: Comparisons, layout: Layout, attributes: tuple[s.Attribute, ...], cap: int
    ) -> None:
        self._layout = layout
        super().__init__(automaton, tables, attributes)
        self._plan = _plan(automaton, tables, layout, cap)
        self._begins_with_wait = bool(self._plan.stages[0, k.WAIT] >= 0)
        self._meta = np.zeros(k.META, np.int64)
        self._meta[k.CLOCK] = k.NOTHING_YET
        self._keys = _keys(16)
        self._timed = self.within >= 0 or bool((self._plan.stages[:, k.WAIT] >= 0).any())
        self._empty(_ROOM)

    def place_of(self, attribute: s.Attribute) -> int:
        """Return the column of the record that an attribute reads."""
        return self._layout.place_of(attribute)

    def _empty(self, room: int) -> None:
        """Make room for this many attempts, of which there are none yet."""
        per = int(self._plan.rules[k.PER_ATTEMPT])
        buckets = 1 << (2 * room * per - 1).bit_length()
        self._pool = np.full((room, k.FIELDS), -1, np.int64)
        self._rows = np.full((room, self._layout.width), -1, np.int64)
        self._links = np.full((room * per, w.FIELDS), -1, np.int64)
        self._heads, self._tails = (np.full(buckets, -1, np.int64) for _ in range(2))
        self._roots = np.full(self._roots_for(len(self._keys)), -1, np.int64)
        self._in_place = np.full(self._places_for(len(self._keys)), -1, np.int64)
        self._queues = np.full((len(self._keys) * len(self._plan.stages), 2), -1, np.int64)
        self._candidates = np.empty(2 * len(self._links), np.int64)
        self._keys[:, k.ATTEMPTS] = 0
        self._keys[:, [k.OLDEST_OF_KEY, k.YOUNGEST_OF_KEY]] = -1
        self._meta[[k.OLDEST, k.YOUNGEST]] = -1
        self._meta[[k.LIVE, k.BUSY, k.FREE]] = 0
        self._pool[: room - 1, k.LATER] = np.arange(1, room)

    def _roots_for(self, keys: int) -> int:
        ordered = bool((self._plan.sides[:, k.INDEX] > w.HASH).any())
        return keys * len(self._plan.sides) if ordered else 0

    def _places_for(self, keys: int) -> int:
        return keys * int(self._plan.rules[k.PLACES]) if self._a.strict else 0

    @property
    def live(self) -> int:
        """The number of attempts that have taken something."""
        return int(self._meta[k.BUSY])

    @property
    def evicted(self) -> int:
        """How many attempts went because of the cap."""
        return int(self._meta[k.EVICTED])

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept, room to grow included."""
        arrays = (
            self._pool, self._rows, self._links, self._heads, self._tails, self._roots, self._in_place, self._keys,
            self._queues, self._candidates,
        )  # fmt: skip
        return int(sum(array.nbytes for array in arrays)) + self.store.nbytes

    def holding(self) -> Array:
        """Return which keys hold anything: alone, an attempt that waits for its first record is as good as none."""
        lasting = self._pool[:, k.POS] >= 0
        if not self._begins_with_wait:
            lasting &= self._pool[:, k.FIRST] != k.NOTHING_YET
        mask = self._keys[:, k.DONE] > 0
        mask[self._pool[lasting, k.KEY]] = True
        return mask

    def reserve(self, slots: int) -> None:
        """Make room for this many keys."""
        old = len(self._keys)
        if slots > old:
            more = max(slots, 2 * old) - old
            self._keys = np.concatenate([self._keys, _keys(more)])
            queues = np.full((more * len(self._plan.stages), 2), -1, np.int64)
            self._queues = np.concatenate([self._queues, queues])
            self._roots = _longer(self._roots, self._roots_for(old + more))
            self._in_place = _longer(self._in_place, self._places_for(old + more))

    # -- matching -----------------------------------------------------------------------------------------------------

    def process(self, chunk: Chunk) -> list[Batch]:
        """Return the matches that the records complete, in order."""
        passes = self.passes(chunk)
        if not self._a.strict and not self._begins_with_wait:
            useful: Array = np.asarray(passes.any(axis=0))
            if not useful.all():
                chunk, passes = chunk.keep(useful), np.ascontiguousarray(passes[:, useful])
        matches: list[Batch] = []
        if chunk.length:
            self._tidy()
            base, at = self.keep(chunk), 0
            room = chunk.length + 64
            while at < chunk.length:
                state = self._state(room)
                at = records.match(  # type: ignore[no-untyped-call]
                    at, chunk.length, base, chunk.times, chunk.slots, chunk.stamps, passes, self._plan, state
                )
                matches += self._matches_of(state)
                room = self._more_room(room)
        return matches

    def advance(self, time: int) -> list[Batch]:
        """Let time pass for all keys: what is absent was waited for, what is old is given up; matches in order of time."""
        if not self._timed:
            return []
        matches: list[Batch] = []
        moments: list[Array] = []
        done, room = False, 256
        last = self._meta[k.SEQ] if time >= k.NEVER - 1 else k.NEVER  # at the end of time nothing starts anew
        while not done:
            state = self._state(room)
            done = bool(records.pass_time_for_all(time, last, self._plan, state))  # type: ignore[no-untyped-call]
            matches += self._matches_of(state)
            moments.append(state.moments[: int(self._meta[k.MATCHES])])
            room = room if done else self._more_room(room)
        if not matches:
            return []
        return [concat_batches(matches).take(np.argsort(np.concatenate(moments), kind="stable"))]

    def _state(self, room: int) -> k.State:
        out, stamps = np.empty((room, self._layout.width), np.int64), np.empty((room, 2), np.int64)
        moments = np.empty(room, np.int64)
        self._meta[k.MATCHES] = 0
        return k.State(
            self._pool, self._rows, self._links, self._heads, self._tails, self._roots, self._in_place, self._queues,
            self._keys, self._meta, self._candidates, self.store.values, out, stamps, moments,
        )  # fmt: skip

    def _matches_of(self, state: k.State) -> list[Batch]:
        n = int(self._meta[k.MATCHES])
        return [self.results(state.out[:n], state.stamps[:n])] if n else []

    def _more_room(self, room: int) -> int:
        """Make room for attempts if there is none left, and return how much there should be for matches."""
        if self._meta[k.LIVE] + k.SPARE > len(self._pool):
            live = self._attempts()
            self._plant(self._fields(live), self._rows[live], 2 * len(self._pool))
        return max(room, min(2 * room, int(self._meta[k.BUSY]) + 64))

    # -- saving and tidying up ----------------------------------------------------------------------------------------

    def _start_over(self) -> None:
        self._rebuild([self.save(np.arange(len(self._keys)))], len(self._pool))

    def save(self, slots: Array) -> dict[str, Any]:
        """Return the attempts of these keys as plain arrays; `slot` counts along `slots`."""
        live, state = self._save_attempts(slots, len(self._keys))
        clock, stamp = int(self._meta[k.CLOCK]), self._meta[[k.CREATED, k.ENTERED]]
        return {**self._fields(live), **state, "done": self._keys[slots, k.DONE], "clock": clock, "stamp": stamp}

    def _fields(self, attempts: Array) -> dict[str, Array]:
        by_age = np.zeros(len(self._pool), np.int64)
        records.number_by_age(self._pool, self._meta, by_age)  # type: ignore[no-untyped-call]
        fields = {name: self._pool[attempts, field] for name, field in _SAVED.items()}
        return {**fields, "slot": self._pool[attempts, k.KEY], "begun": by_age[attempts]}

    def load(self, state: dict[str, Any], slots: Array) -> None:
        """Add saved attempts; `slots` are the keys that theirs have here."""
        if not len(slots):
            return
        self.reserve(int(slots.max()) + 1)
        current = self.save(np.arange(len(self._keys)))
        self._keys[slots, k.DONE] = state["done"]
        base = int(self._meta[k.SEQ])
        later = {"slot": slots[state["slot"]], "came": state["came"] + base, "born": state["born"] + base}
        if state["clock"] >= self._meta[k.CLOCK]:
            self._meta[k.CLOCK], self._meta[[k.CREATED, k.ENTERED]] = state["clock"], state["stamp"]
        self._meta[k.SEQ] = base + max(state["came"].max(initial=0), state["born"].max(initial=0))
        self._rebuild([current, {**state, **later}], len(self._pool))

    def _rebuild(self, states: list[dict[str, Any]], room: int) -> None:
        """Start with the attempts of these states, and a new store."""
        rows, fields = self._merge_states(states, ("slot", "begun", *_SAVED))
        self._plant(fields, rows, room)

    def _plant(self, attempts: dict[str, Array], rows: Array, room: int) -> None:
        """Start with these attempts: the one that began first is the oldest, the one that came first is found first."""
        count = len(rows)
        self._empty(max(room, 1 << (count + k.SPARE).bit_length()))
        self._rows[:count] = rows
        self._pool[:count, k.KEY], self._pool[:count, k.LINKS] = attempts["slot"], 0
        for name, field in _SAVED.items():
            self._pool[:count, field] = attempts[name]
        self._meta[[k.FREE, k.LIVE]] = count
        with_first = np.flatnonzero(attempts["first"] != k.NOTHING_YET)
        by_age = with_first[np.lexsort((attempts["begun"][with_first], attempts["first"][with_first]))]
        by_deadline = np.lexsort((attempts["came"], attempts["deadline"]))
        waiting = by_deadline[attempts["deadline"][by_deadline] != k.NEVER]
        records.plant(np.argsort(attempts["came"]), by_age, waiting, self._plan, self._state(0))  # type: ignore[no-untyped-call]
