"""What is killed: a source, state by key and a sink, and what the sink and the state must hold in the end."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from headwater import Flow
from headwater.data.column import Array, Text
from headwater.engine.checkpoint.store import Store
from headwater.flow.endpoints import Sink, Source
from headwater.flow.stream import Stream
from headwater.operators.snapshot import unpack_state
from headwater_bench.kills.children import answer_of

Row = tuple[Any, ...]
Rows = Counter[Row]  #: what a sink holds, each record as often as it is there

RECORDS = 3_000  #: of a flow with one source
FIELDS: dict[str, Any] = {"key": str, "n": int}
SUMMED = ("key", "n", "total")  #: the columns of what is written
_KEYS = 13
_STEP_S = 50e-6  #: for which a slow sum rests at each record


@dataclass
class Discrepancy:
    """What is wrong with what a sink, or the state, holds in the end; `again` is no fault where the sink may have it."""

    lost: int = 0
    twice: int = 0
    again: int = 0  #: records that came more than once, where that is all that can be promised: receivers can tell
    state: int = 0  #: keys whose state is not that of an undisturbed run
    why: list[str] = field(default_factory=list)  #: the first of each

    def hold(self, name: str, actual: Rows, whole: Rows) -> None:
        """Hold what a sink has against what it should, where each record is there once."""
        lost, twice = whole - actual, actual - whole
        self.lost, self.twice = self.lost + lost.total(), self.twice + twice.total()
        if lost or twice:
            self.why.append(f"{name} lacks {list(lost)[:3]}, and has too often {list(twice)[:3]}")

    def hold_state(self, state: dict[str, int], expected: dict[str, int]) -> None:
        """Hold the state of the keyed step against what it should be."""
        wrong = [key for key in {*state, *expected} if state.get(key) != expected.get(key)]
        self.state += len(wrong)
        if wrong:
            self.why.append(f"the state is wrong: {[(key, state.get(key), expected.get(key)) for key in wrong[:3]]}")


class Origin(ABC):
    """Where the records of a case come from."""

    name: str
    once: bool = True  #: whether each record counts once, whoever is killed
    ends: bool = False  #: whether the flow comes to its end by itself
    points: tuple[str, ...] = ()  #: whose points a run that reads it may kill itself at
    pace: float = 1.0  #: how many times as long as others a run takes to begin
    modules: tuple[str, ...] = ()  #: which a run imports when it begins

    @abstractmethod
    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""

    def prepare(self, folder: Path) -> None:  # noqa: B027  most need nothing
        """Make ready what the first run needs; in a process of its own."""

    def feed(self, folder: Path) -> Callable[[], None] | None:
        """Return what is done in a process of its own while runs are killed, until all records are on their way."""
        return None

    def remove(self, folder: Path) -> None:  # noqa: B027  nor leave anything
        """Remove what a server keeps of a round; in a process of its own."""


class Target(ABC):
    """Where the records of a case go."""

    name: str
    once: bool = True  #: whether each record is there once, or once by its id
    ids: bool = False  #: whether a record may come again, and has an id, the last of its values, by which that is told
    points: tuple[str, ...] = ()
    pace: float = 1.0
    modules: tuple[str, ...] = ()

    @abstractmethod
    def sink(self, folder: Path) -> Sink:
        """Describe the sink of one round."""

    @abstractmethod
    def rows(self, folder: Path) -> list[Row]:
        """Return what it holds, as another program finds it, and remove what a server keeps; in a process of its own."""

    def prepare(self, folder: Path) -> None:  # noqa: B027  most need nothing
        """Make ready what must be there before the first record; in a process of its own."""


class Case:
    """A source, a sum by key, a sink."""

    lanes = 1

    def __init__(self, origin: Origin, target: Target) -> None:
        self.origin, self.target = origin, target
        self.name = f"{origin.name} → {target.name}"  #: what it is called in the answer
        self.ends = origin.ends
        self.points = (*origin.points, *target.points)  #: whose points a run may kill itself at
        self.pace = max(origin.pace, target.pace)  #: how many times as long as others a run takes to begin

    def rehearse(self, folder: Path) -> None:
        """Import what runs need, so that each of them need not; what belongs into the sink can be reckoned."""
        for name in ("engine.checkpoint", "io.transactions.line_file", *self.origin.modules, *self.target.modules):
            import_module(f"headwater.{name}")

    def prepare(self, folder: Path) -> None:
        """Make ready what the first run needs; in a process of its own."""
        self.origin.prepare(folder)
        self.target.prepare(folder)

    def feed(self, folder: Path) -> Callable[[], None] | None:
        """Return what is done beside the runs, until all records are on their way."""
        return self.origin.feed(folder)

    def flow(self, folder: Path) -> Flow:
        """Describe the flow of one round."""
        flow = Flow("killed")
        summed(flow.read("in", self.origin.source(folder)), step=slow_sum).write("out", self.target.sink(folder))
        return flow

    def is_complete(self, folder: Path) -> bool:
        """Say whether all records have come through, of a flow that does not end: how far the text file is tells."""
        return len({n for _, n, _ in self.target.rows(folder)}) >= RECORDS

    def judge(self, folder: Path) -> Discrepancy:
        """Hold what is there in the end against an undisturbed run, and remove what servers keep of it."""
        rows: list[Row] = [tuple(row) for row in answer_of(lambda: self.target.rows(folder))]
        answer_of(lambda: self.origin.remove(folder))
        discrepancy, count = Discrepancy(), len(rows)
        if self.target.ids:
            rows = list({row[-1]: row[:-1] for row in rows}.values())
            discrepancy.again = count - len(rows)
        actual, whole = Counter(rows), Counter(undisturbed())
        if self.origin.once and self.target.once:
            discrepancy.hold(self.target.name, actual, whole)
        else:
            self._hold_some(discrepancy, actual, whole)
        discrepancy.hold_state(state_of(folder), totals(rows if self.target.once else undisturbed()))
        return discrepancy

    def _hold_some(self, discrepancy: Discrepancy, actual: Rows, whole: Rows) -> None:
        """Hold what may be there more than once against what must be there: a receiver tells by a record's number."""
        numbers = Counter((n,) for _, n, _ in actual.elements())
        discrepancy.again = numbers.total() - len(numbers)
        discrepancy.hold(self.target.name, Counter(set(numbers)), Counter((n,) for _, n, _ in whole))
        if self.origin.once:  # what comes again is the same
            discrepancy.hold(self.target.name, Counter(set(actual)), whole)


Summing = Callable[[int | None, dict[str, Any]], tuple[int, dict[str, Any]]]


def sum_of(total: int | None, record: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Add a record to the sum of its key."""
    total = (total or 0) + record["n"]
    return total, {"key": record["key"], "n": record["n"], "total": total}


def slow_sum(total: int | None, record: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Add a record, and rest a moment: a run is to be at work when it is killed."""
    time.sleep(_STEP_S)
    return sum_of(total, record)


def summed(stream: Stream, parallel: int = 1, step: Summing = sum_of) -> Stream:
    """Have records summed by key; each shows the sum so far, which tells whether the state is right."""
    return stream.key_by("key").process("sum", step, out={"key": str, "n": int, "total": int}, parallel=parallel)


def key_of(n: int) -> str:
    """Return the key that a number has."""
    return f"k{n % _KEYS}"


def make_records(numbers: Array) -> dict[str, Any]:
    """Make the records of these numbers, as a generator does."""
    return {"key": Text.of([key_of(n) for n in numbers.tolist()]), "n": numbers}


def records(start: int = 0, stop: int = RECORDS) -> list[dict[str, Any]]:
    """Return the records of some numbers."""
    return [{"key": key_of(n), "n": n} for n in range(start, stop)]


def undisturbed() -> list[Row]:
    """Return what a sink holds in the end of an undisturbed run."""
    sums: dict[str, int] = {}
    rows: list[Row] = []
    for n in range(RECORDS):
        key = key_of(n)
        sums[key] = sums.get(key, 0) + n
        rows.append((key, n, sums[key]))
    return rows


def totals(rows: list[Row]) -> dict[str, int]:
    """Return the sums by key of what a sink holds."""
    sums: dict[str, int] = {}
    for key, n, _ in rows:
        sums[key] = sums.get(key, 0) + n
    return sums


def state_of(folder: Path) -> dict[str, int]:
    """Return what the step `sum` keeps by key in the last checkpoint of a round, of all its instances."""
    last = Store(folder / "checkpoint").latest()
    assert last is not None
    state: dict[str, int] = {}
    for task in last.content["tasks"]["sum"]:
        content = unpack_state("process", task["state"])
        assert not task["changes"]
        state.update({key: total for (key,), total in zip(content["keys"], content["states"], strict=True)})
    return state
