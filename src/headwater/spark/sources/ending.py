"""An end for what a connector of Spark's reads, which knows none: it comes from a source of nothing else, when told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.data.batch import Batch
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, Ranges
from headwater.spark.envelope import Row
from headwater.spark.frames import LAST
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.data_source import Prefix, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_end(spark: SparkSession, rows: DataFrame, step: str, prefix: Prefix, control: SourceControl) -> DataFrame:
    """Return the rows of a source, and behind them, once `control` says so, those that say that it has ended."""
    nothing = _Nothing()
    return rows.union(rows_of(spark, step, nothing, nothing.start(), _behind(prefix), control))


def _behind(prefix: Prefix) -> Prefix:
    def rows(number: int, put_out: Iterator[tuple[int, Batch]]) -> Iterator[Row]:
        return prefix(LAST + number, put_out)

    return rows


class _Nothing(Ranges):
    """A source without records, which can only end."""

    def start(self) -> Offset:
        """Return the only place there is."""
        return {"ended": False}

    def advance(self, at: Offset) -> Offset:
        """Stay."""
        return at

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return no piece."""
        return []

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Return nothing."""
        return iter(())
