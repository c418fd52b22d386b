"""A sink that keeps its promises across crashes, and now and then does not answer as one would like."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import CutTransaction, Transaction

Row = tuple[Any, ...]


class SinkContents:
    """What a sink has, as it outlives processes: rows that count, and parts that wait."""

    def __init__(self) -> None:
        self.parts: dict[int, list[Row]] = {}  #: by number; those up to `committed` count
        self.committed = -1

    def rows(self) -> list[Row]:
        """Return the rows that count."""
        return [row for number, rows in self.parts.items() if number <= self.committed for row in rows]


class SimulatedParts(CutTransaction):
    """An open sink; `fails` says by the name of a call whether it fails now."""

    def __init__(self, contents: SinkContents, after: int, fails: Callable[[str], bool]) -> None:
        if after > max(contents.parts, default=-1):
            raise AssertionError(f"the run goes on after part {after}, which the sink was never asked to prepare")
        self._contents, self._fails, self._part = contents, fails, []
        contents.parts = {number: rows for number, rows in contents.parts.items() if number <= after}
        contents.committed = after

    _part: list[Row]

    @property
    def committed(self) -> int:
        """The last part that counts."""
        return self._contents.committed

    def write(self, batch: Batch) -> None:
        """Take records."""
        self._part += [tuple(row.values()) for row in batch.rows()]

    def cut(self, number: int) -> Callable[[], None]:
        """End the part here; until it is kept, nothing of it outlives a crash."""
        if self._fails("prepare"):
            raise OSError("the sink is not there")
        return partial(self._keep, number, len(self._part))

    def _keep(self, number: int, count: int) -> None:
        if self._fails("prepare"):
            raise OSError("the sink is not there")
        self._contents.parts[number] = self._part[:count]
        del self._part[:count]
        if self._fails("prepare"):
            raise OSError("the sink did not answer")

    def commit(self, number: int) -> None:
        """Let parts count."""
        if self._fails("commit"):
            raise OSError("the sink is not there")
        if number not in self._contents.parts:
            raise AssertionError(f"part {number} was never prepared")
        self._contents.committed = max(self._contents.committed, number)

    def rollback(self) -> None:
        """Forget what is not prepared."""
        self._part = []

    def close(self) -> None:
        """Nothing is open."""


def parts_of(contents: SinkContents, after: int, fails: Callable[[str], bool]) -> Callable[[Any, Schema], Transaction]:
    """Return what opens a sink for an operator."""
    return lambda sink, schema: SimulatedParts(contents, after, fails)
