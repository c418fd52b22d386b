"""Flows of random shape whose results do not depend on the order in which the engine happens to do things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from headwater import Flow, agg, col, io
from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.data.schema import Fields, Schema
from headwater.flow.state import Cell
from headwater.flow.stream import Stream
from headwater.flow.windows import Session, Sliding, Tumbling, Window
from headwater.operators.execution_graph import ExecutionGraph

FIELDS: Fields = {"id": int, "k": int, "x": int, "t": "time"}
_BROKEN = 13  #: each record whose number is a multiple of this breaks the steps that may break
_SECOND = 1_000_000


@dataclass
class Shape:
    """A flow, as many instances of its keyed steps as are wanted, and the records of its sources."""

    seed: int
    #: whether a source may end in one run and have more records in the next: what closes at the end would come too early
    may_grow: bool = True
    records: dict[str, Batch] = field(default_factory=dict)

    @lru_cache(maxsize=8)  # noqa: B019  shapes are few, and live as long as the process
    def graph(self, more: int = 0) -> ExecutionGraph:
        """Return the flow laid out, with `more` instances of each keyed step."""
        return ExecutionGraph.of(_Building(self, more).flow)

    def __hash__(self) -> int:
        return hash(self.seed)


@lru_cache(maxsize=4096)
def shape(seed: int) -> Shape:
    """Return the shape of a number, always the same."""
    result = Shape(seed)
    result.graph()
    return result


class _Building:
    """Adds steps by chance."""

    def __init__(self, shape: Shape, more: int) -> None:
        self.random, self.shape, self.more = Random(shape.seed), shape, more
        self.flow, self.count = Flow(f"shape {shape.seed}"), 0
        self.open: list[Stream] = []
        for number in range(self.random.randint(1, 3)):
            self._source(f"source {number}")
        kinds = [self._map, self._split, self._union, self._process, self._scan, self._window, self._join]
        for _ in range(self.random.randint(1, 5)):
            if self.open:
                self.random.choice(kinds)()
        for stream in self.open:
            stream.write(self._name("out"), io.Collect())
        if self.random.random() < 0.6:
            self.flow.dead_letters.write(self._name("dead"), io.Collect())

    def _source(self, name: str) -> None:
        if name not in self.shape.records:
            self.shape.records[name] = _records(Random(f"{self.shape.seed} {name}"), int(name[-1]))
        stream = self.flow.read(name, io.Items([], FIELDS))
        self.open.append(stream.event_time(self._name("time"), "t"))

    def _name(self, what: str) -> str:
        self.count += 1
        return f"{what} {self.count}"

    def _take_stream(self) -> Stream:
        """Return an open stream; it may stay open for another."""
        at = self.random.randrange(len(self.open))
        return self.open[at] if self.random.random() < 0.3 else self.open.pop(at)

    def _parallel(self) -> int:
        return self.random.choice([1, 1, 2, 3]) + self.more

    def _map(self) -> None:
        self.open.append(
            self._take_stream().map(self._name("map"), _may_break, out=FIELDS, parallel=self.random.choice([1, 2]))
        )

    def _split(self) -> None:
        self.open += self._take_stream().split(self._name("split"), col.x > 4)

    def _union(self) -> None:
        if len(self.open) > 1:
            self.open.append(self.open.pop(0).union(self._name("union"), self.open.pop()))

    def _process(self) -> None:
        keyed = self._take_stream().key_by("k")
        self.open.append(keyed.process(self._name("seen"), _seen, out=FIELDS, parallel=self._parallel()))

    def _scan(self) -> None:
        keyed = self._take_stream().key_by("k")
        self.open.append(keyed.scan(self._name("tally"), _Tally(), out=FIELDS, parallel=self._parallel()))

    def _window(self) -> None:
        self.shape.may_grow = False
        kinds: list[Window] = [Tumbling("10 s"), Sliding("20 s", every="5 s"), Session("8 s")]
        kind = self.random.choice(kinds)
        windows = (
            self._take_stream()
            .key_by("k")
            .window(self._name("window"), kind, n=agg.count(), total=agg.sum("x"), parallel=self._parallel())
        )
        windows.write(self._name("out"), io.Collect())
        windows.late.write(self._name("late"), io.Collect())

    def _join(self) -> None:
        if len(self.open) < 2:
            return
        self.shape.may_grow = False
        left, right = self._take_stream(), self.open[self.random.randrange(len(self.open))]
        renamed = right.select(self._name("right"), "k", "t", other=col.id)
        pairs = left.key_by("k").join(self._name("pair"), renamed.key_by("k"), within="3 s", parallel=self._parallel())
        pairs.select(self._name("pairs"), "id", "k", other=col.other).write(self._name("out"), io.Collect())


def _records(random: Random, last_digit: int) -> Batch:
    """Make the records of a source, in order of time; no two of a flow have the same number."""
    at, rows = random.randrange(10), []
    for number in range(random.choice([0, 5, 15, 40])):
        at += random.choice([0, 1, 1, 2, 15])
        rows.append(
            {"id": number * 10 + last_digit, "k": random.randrange(6), "x": random.randrange(9), "t": at * _SECOND}
        )
    return Batch.of_rows(rows, Schema.of(FIELDS))


class _Tally:
    """Counts and adds up what came of each key."""

    state: Mapping[str, Cell] = {"count": Cell("int64"), "total": Cell("int64")}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> dict[str, Any]:
        """Return the records as they are."""
        np.add.at(state["count"], slots, 1)
        np.add.at(state["total"], slots, batch.columns["id"])  # type: ignore[arg-type]
        return {}


def _may_break(record: dict[str, Any]) -> dict[str, Any]:
    if record["id"] % _BROKEN == 0:
        raise ValueError("thirteen")
    return record


def _seen(state: list[int] | None, record: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """Count how often each record came, in whatever order: a second time it would come out otherwise."""
    again = state is not None and record["id"] in state
    return sorted([*(state or []), record["id"]]), {**record, "x": record["x"] + 1000 * again}
