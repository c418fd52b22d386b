"""Sources whose records come from several splits, such as the partitions of a topic: each in an order of its own.

Event time is known by the newest record alone. It tells how far one split has come; of several that were read one after the
other, each with an hour to catch up on, the first would make the records of all others late. So runners put the records of
splits in the order of their event time. For that a source says `splits = True`, and its reader is a `SplitReader`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.flow.flow import Flow
from headwater.flow.partitioning import partitioning_of
from headwater.flow.steps import EventTime, OnTheWay, Read


class Letter(NamedTuple):
    """What was no record: its split, its position there, and what `reject` is to be told."""

    split: int
    position: int
    text: str
    error: str


class SplitBatch(NamedTuple):
    """Records of several splits: those of each in its order."""

    batch: Batch
    splits: Array  #: of each record: the number of its split
    after: Array  #: of each record: the position of its split behind it, a whole number that grows
    letters: list[Letter]


class SplitReader(Protocol):
    """An open source that tells of each record from which split it is.

    `read` hands records out as they come, for who does not care. `position` is a dictionary: of each split, by its number as
    a text, the position behind which all is yet to be read.
    """

    position: dict[str, int]

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return up to `limit` records, none if nothing came in time, or None when nothing will ever come."""

    def read_splits(self, limit: int, timeout_s: float) -> SplitBatch | None:
        """Do what `read` does, and tell the splits; what is no record is among the letters, and not rejected."""

    def behind(self) -> Collection[int]:
        """Return the splits that hold more than was read: none that is empty, or read to its end for now."""

    def hold(self, splits: Collection[int]) -> None:
        """Read no more of these until it is said again which, and of all others."""

    def close(self) -> None:
        """Release what was opened."""


def has_splits(source: Any) -> bool:
    """Tell whether a source's records come from several splits."""
    return getattr(source, "splits", False) is True


def way_to_time(flow: Flow, source: str) -> tuple[OnTheWay, ...]:
    """Return the steps that lead from a source to the one that reads event time, itself the last.

    There is none where a step that keeps something is between them: what it makes of a record depends on others.
    """
    ways: dict[str, tuple[OnTheWay, ...]] = {source: ()}
    for step in flow.in_order():
        for number, edge in enumerate(step.inputs):
            if edge.step not in ways or edge.grouping == "all":
                continue
            port = list(flow.steps[edge.step].outputs).index(edge.port)
            way = (*ways[edge.step], OnTheWay(step, number, port))
            if isinstance(step.kind, EventTime):
                return way
            if partitioning_of(step).role == "free":
                ways.setdefault(step.name, way)
    return ()


def knowing_time(flow: Flow) -> Flow:
    """Return a flow of which each source of splits knows how its event time is found, however it is cut into parts then."""
    kinds = {}
    for step in flow.steps.values():
        kind = step.kind
        if isinstance(kind, Read) and has_splits(kind.source) and not kind.way:
            way = way_to_time(flow, step.name)
            if way:
                kinds[step.name] = replace(kind, way=way)
    return flow.replaced(kinds) if kinds else flow
