"""Sliding windows: `length`, `time`, `externalTime`, and aggregates without a window; a result for each record.

These are the windows of queries, and mean what they mean in Siddhi. A flow's `Count(size, every=…)` has a result only once
it is full, NaN makes its extremes NaN, and it takes functions of all values; a flow's `Sliding` has one when the watermark
passes its end. So those have operators of their own, over the same keys and aggregates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.data.batch import CREATED, END, NO_WATERMARK, Batch
from headwater.data.column import Array, Column
from headwater.data.schema import Schema
from headwater.flow.aggregates import Aggregate, aggregates_text
from headwater.operators.accumulate import unfit
from headwater.operators.kernels import slide as k
from headwater.operators.keyed import combine, with_letters
from headwater.operators.keys import IdleKeys, KeySlots, keys_batch
from headwater.operators.operator import Operator, Output, Select, compute_or_reject, dead_letters
from headwater.operators.progress import Progress, split_off
from headwater.operators.projection import Projection
from headwater.operators.running import following
from headwater.operators.snapshot import pack_state, unpack_state

_KIND = "sliding query window"


@dataclass(frozen=True)
class SlidingWindowPlan:
    """A window over the last `limit` records, or those of the last `span_us`, or without both all so far."""

    schema: Schema
    limit: int
    span_us: int
    time: str | None  #: the column of time; None means the moment of creation
    keys: tuple[str, ...]  #: of the partition: each has a window of its own
    groups: tuple[str, ...]  #: of `group by`: they share the window
    aggregates: tuple[tuple[str, Aggregate], ...]
    projection: Projection
    step: str
    by_watermark: bool = True  #: or does that speak of another time
    result_time: str | None = None  #: the column of the results' event time

    def __call__(self) -> SlidingWindowOperator:
        """Make a new operator."""
        return SlidingWindowOperator(self)

    @property
    def __name__(self) -> str:
        """What drawings call the step."""
        return "sliding window" if self.limit or self.span_us else "running aggregate"

    @property
    def keeps(self) -> str:
        """What saved state is about."""
        size = self.limit or f"{self.span_us / 1e6:g} s of {self.time or 'creation'}"
        return f"{self.__name__} {size} {aggregates_text(self.groups, self.aggregates)}"


class SlidingWindowOperator(Operator):
    """Gives each record the aggregates of its group over the window that ends with it."""

    stateless = False

    def __init__(self, plan: SlidingWindowPlan) -> None:
        self._plan = plan
        self._select = plan.projection.runner(plan.step)
        self._windows = KeySlots(plan.schema, plan.keys)
        self._groups = KeySlots(plan.schema, (*plan.keys, *plan.groups))
        self._holds_records = bool(plan.limit or plan.span_us)
        self._each = [following(aggregate, plan.schema) for _, aggregate in plan.aggregates]
        self._nodes = {name: np.zeros(0, np.int64) for name in ("following", "group", "time", "born")}
        self._head, self._tail = np.full(16, -1, np.int64), np.full(16, -1, np.int64)
        self._count = np.zeros(16, np.int64)
        self._meta = np.zeros(k.META, np.int64)
        self._meta[k.FREE] = -1
        self._progress, self._swept = Progress(by_watermark=plan.by_watermark), NO_WATERMARK
        self.idle_keys = IdleKeys()  #: those, groups included, of which no window holds a record

    def process(self, batch: Batch, port: int) -> Output:
        """Return a result for each record."""
        batch, letters = split_off(batch, (*self._plan.keys, *self._plan.groups), self._plan.time, self._plan.step)
        batch, inputs, more = compute_or_reject(self._inputs, batch, self._plan.step)
        letters = combine(letters, more)
        if not batch.length:
            return with_letters(None, letters)
        columns, too_far = self._run(batch, self._times(batch), inputs)
        self._forget_idle_keys()
        out, more = self._select.run(batch.with_columns(columns))
        return with_letters(out, combine(letters, self._overflow_letters(batch, too_far), more))

    def _inputs(self, batch: Batch) -> list[Column | None]:
        return [each.read(batch) for each in self._each]

    def _overflow_letters(self, batch: Batch, too_far: list[tuple[str, Array]]) -> Batch | None:
        """Return dead letters for the records with which a sum left 64 bits."""
        return combine(
            *(dead_letters(self._plan.step, [unfit(name)] * int(bad.sum()), batch.filter(bad)) for name, bad in too_far)
        )

    def _times(self, batch: Batch) -> Array:
        if self._plan.time is None:
            return self._progress.in_order(batch.stamps[:, CREATED] // 1000)
        return self._progress.at_least_watermark(batch.columns[self._plan.time])  # type: ignore[arg-type]

    def _run(
        self, batch: Batch, times: Array, inputs: list[Column | None]
    ) -> tuple[dict[str, Column], list[tuple[str, Array]]]:
        groups = self._groups.slots_of(batch)
        moves = self._moves(batch, times, groups)
        columns: dict[str, Column] = {}
        too_far: list[tuple[str, Array]] = []
        for (name, _), each, column in zip(self._plan.aggregates, self._each, inputs, strict=True):
            each.reserve(len(self._groups), len(self._nodes["group"]))
            columns[name] = each.run(column, moves)
            if each.too_far is not None:
                too_far.append((name, each.too_far))
        return columns, too_far

    def _moves(self, batch: Batch, times: Array, groups: Array) -> k.Moves:
        n = batch.length
        room = int(self._meta[k.LIVE]) + n if self._holds_records else 0
        node_of, ends = np.full(n, -1, np.int64), np.zeros(n, np.int64)
        moves = k.Moves(groups, node_of, ends, np.empty(room, np.int64), np.empty(room, np.int64))
        if not self._holds_records:
            return moves
        windows = self._windows.slots_of(batch) if self._plan.keys else np.zeros(n, np.int64)
        self._reserve(n, len(self._windows) if self._plan.keys else 1)
        count = k.slide(windows, groups, times, self._plan.limit, self._plan.span_us, self._pool(), tuple(moves))  # type: ignore[no-untyped-call]
        return moves._replace(leaving=moves.leaving[:count], leaving_groups=moves.leaving_groups[:count])

    def _pool(self) -> tuple[Array, ...]:
        at = self._nodes
        return at["following"], at["group"], at["time"], at["born"], self._head, self._tail, self._count, self._meta

    def _reserve(self, records: int, windows: int) -> None:
        free = len(self._nodes["group"]) - int(self._meta[k.LIVE])
        if records > free:
            old = len(self._nodes["group"])
            room = max(2 * old, old + records - free, 1024)
            for name, array in self._nodes.items():
                self._nodes[name] = np.concatenate([array, np.zeros(room - old, np.int64)])
            self._nodes["following"][old:room] = np.arange(old + 1, room + 1)
            # the new free nodes come before those that are left
            self._nodes["following"][room - 1] = self._meta[k.FREE]
            self._meta[k.FREE] = old
        if windows > len(self._head):
            more = max(windows, 2 * len(self._head)) - len(self._head)
            self._head = np.concatenate([self._head, np.full(more, -1, np.int64)])
            self._tail = np.concatenate([self._tail, np.full(more, -1, np.int64)])
            self._count = np.concatenate([self._count, np.zeros(more, np.int64)])

    def advance(self, watermark: int) -> Output:
        """Let old records leave also the windows to which no more records come."""
        time = self._progress.pass_(watermark)
        if self._plan.span_us and NO_WATERMARK < time < END and time - self._plan.span_us > self._swept:
            self._swept = time
            self._sweep(time)
        return None

    def _sweep(self, now: int) -> None:
        room = int(self._meta[k.LIVE])
        if not room:
            return
        leaving, leaving_groups = (np.empty(room, np.int64) for _ in range(2))
        count = k.sweep(now, self._plan.span_us, self._pool(), leaving, leaving_groups)  # type: ignore[no-untyped-call]
        none, nothing = np.zeros(0, np.int64), Batch.none(self._plan.schema)
        for each in self._each:
            each.run(each.read(nothing), k.Moves(none, none, none, leaving[:count], leaving_groups[:count]))

    def _forget_idle_keys(self) -> None:
        """Forget groups without a record in a window, once they may be the greater part; aggregates without one stay."""
        group_count = len(self._groups)
        if self._holds_records and self.idle_keys.may_be_many(group_count):
            now = self._progress.now if self._plan.time is None else self._progress.watermark_us
            if self._plan.span_us and now > NO_WATERMARK:
                self._sweep(now)
            groups = np.unique(self._nodes["group"][self._live()])
            if self.idle_keys.worth(group_count - len(groups)):
                self._keep(groups)
            self.idle_keys.note(group_count, len(self._groups))

    @property
    def nbytes(self) -> int:
        """Bytes of all state: records in windows, aggregates, keys."""
        arrays = [*self._nodes.values(), self._head, self._tail, self._count]
        arrays += [array for each in self._each for table in (each.g, each.n) for array in table.values()]
        return sum(int(array.nbytes) for array in arrays) + self._windows.nbytes + self._groups.nbytes

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the windows of the chosen keys: their records in order, or what running aggregates have come to."""
        slots = self._select_groups(select)
        state: dict[str, Any] = {"clock": (self._progress.now, self._progress.watermark_us)}
        if self._holds_records:
            live = self._live()
            live = live[np.isin(self._nodes["group"][live], slots)]
            keys = self._groups.columns(self._nodes["group"][live])
            values = [each.save(live) for each in self._each]
            state |= {"keys": keys, "times": self._nodes["time"][live], "values": values, "count": len(live)}
        else:
            sums = [each.save_groups(slots) for each in self._each]
            state |= {"keys": self._groups.columns(slots), "sums": sums, "count": len(slots)}
        return pack_state(_KIND, state)

    def _live(self) -> Array:
        """Return the nodes in use, oldest first."""
        used = np.ones(len(self._nodes["group"]), np.bool_)
        node, following_ = int(self._meta[k.FREE]), self._nodes["following"]
        while node >= 0:
            used[node] = False
            node = int(following_[node])
        live = np.flatnonzero(used)
        return live[np.argsort(self._nodes["born"][live])]

    def restore(self, data: bytes) -> None:
        """Take over windows by letting their records enter again."""
        state = unpack_state(_KIND, data)
        self._progress.load(*state["clock"])
        if not state["count"]:
            return
        batch = keys_batch(state["keys"], state["count"])
        if self._holds_records:
            self._run(batch, state["times"], state["values"])
        else:
            slots = self._groups.slots_of(batch)
            for each, sums in zip(self._each, state["sums"], strict=True):
                each.reserve(len(self._groups), 0)
                each.load_groups(slots, sums)

    def forget(self, select: Select) -> None:
        """Drop the windows of the chosen keys."""
        self._keep(np.setdiff1d(np.arange(len(self._groups)), self._select_groups(select)))

    def _select_groups(self, select: Select | None) -> Array:
        """Return the groups of the chosen keys: the partition decides, not what `group by` adds."""
        slots = np.arange(len(self._groups))
        if select is None or not len(slots) or not self._plan.keys:
            return slots
        columns = self._groups.columns(slots)
        return slots[select.rows([columns[name] for name in self._plan.keys])]  # type: ignore[misc]

    def _keep(self, groups: Array) -> None:
        """Start over with these groups alone."""
        rest = SlidingWindowOperator(self._plan)
        if self._holds_records:
            live = self._live()
            live = live[np.isin(self._nodes["group"][live], groups)]
            batch = keys_batch(self._groups.columns(self._nodes["group"][live]), len(live))
            if len(live):
                rest._run(batch, self._nodes["time"][live], [each.save(live) for each in self._each])
        elif len(groups):
            slots = rest._groups.slots_of(keys_batch(self._groups.columns(groups), len(groups)))
            for source, target in zip(self._each, rest._each, strict=True):
                target.reserve(len(groups), 0)
                target.load_groups(slots, source.save_groups(groups))
        rest._progress, rest.idle_keys = self._progress, self.idle_keys
        self.__dict__.update(rest.__dict__)
