"""An end for what a connector of Spark's reads, which knows none: it comes from a source of nothing else, when told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headwater.data.batch import Batch
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, Ranges
from headwater.spark.envelope import OfSplit, Row
from headwater.spark.frames import LAST, rows_of_frame
from headwater.spark.heads import Head
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.data_source import Prefix, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_end(
    spark: SparkSession, rows: DataFrame, step: str, prefix: Prefix, control: SourceControl, waits: int = 0
) -> DataFrame:
    """Return the rows of a source, and behind them, once `control` says so, those that say that it has ended.

    It is said so many micro-batches later as there is something that still `waits` for it.
    """
    nothing = _Nothing(waits)
    return rows.union(rows_of(spark, step, nothing, nothing.start(), _behind(prefix), control))


def ended(
    spark: SparkSession, rows: Mapping[str, DataFrame], head: Head, prefix: Prefix, control: SourceControl
) -> DataFrame:
    """Return the rows of what comes out of a head, and behind them those that say that all its sources have ended.

    Windows of Spark's close in the micro-batch after the one in which they are told of the end, and who plans that may look
    at `control` one micro-batch later than who says it to our steps: so these are told two micro-batches later.
    """
    nothing = _Nothing()
    names = head.sources if head.waits else ()
    last = {name: rows_of(spark, name, nothing, nothing.start(), _once, control) for name in names}
    records = rows_of_frame(head.of(rows, last), head.schema.only(head.columns), prefix)
    return with_end(spark, records, head.source, prefix, control, waits=2 if last else 0)


def _once(number: int, put_out: Iterator[tuple[int, Batch]], split: OfSplit | None = None) -> Iterator[Row]:
    return ((-1, 0, 0, b"") for _ in put_out)


def _behind(prefix: Prefix) -> Prefix:
    def rows(number: int, put_out: Iterator[tuple[int, Batch]], split: OfSplit | None = None) -> Iterator[Row]:
        return prefix(LAST + number, put_out, split)

    return rows


class _Nothing(Ranges):
    """A source without records, which can only end."""

    def __init__(self, waits: int = 0) -> None:
        self._waits = waits

    def start(self) -> Offset:
        """Return the only place there is, but for those where it waits."""
        return {"ended": False, "waited": 0} if self._waits else {"ended": False}

    def advance(self, at: Offset) -> Offset:
        """Stay."""
        return at

    def finish(self, at: Offset, until_ns: int | None) -> Offset:
        """Wait for a micro-batch, as often as need be."""
        return {**at, "waited": at["waited"] + 1} if self._waits and at["waited"] < self._waits else at

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return no piece."""
        return []

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Return nothing."""
        return iter(())
