"""Records that nobody keeps: they are dropped by the tasks that have them, and need not travel."""

from __future__ import annotations

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Ledger, Refused, StagedWriter, Staging


class Discarding:
    """How Spark writes what nobody keeps."""

    way = ""
    guarantee = "kept by nobody"

    def check(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Find nothing wrong with it."""

    def open(self, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> Dropped:
        """Start dropping."""
        return Dropped()


class Dropped(StagedWriter):
    """Takes note of nothing."""

    def __init__(self) -> None:
        self.staging: Staging = Dropping()
        self._committed = -1

    @property
    def committed(self) -> int:
        """The last part that was dropped."""
        return self._committed

    def write(self, batch: Batch) -> None:
        """Drop records that no task has dropped."""

    def stage(self, words: bytes) -> None:
        """Hear of records that a task has dropped."""

    def commit(self, number: int) -> None:
        """Take note that all are gone."""
        self._committed = number

    def rollback(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Nothing is open."""


class Dropping:
    """Drops records where they are."""

    def write(self, batch: Batch) -> tuple[bytes, Batch, Refused]:
        """Say that they are gone."""
        return b"dropped", batch, {}
