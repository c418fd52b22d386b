"""Sources that a flow has of its own beside DataFrames, in a query that somebody else starts and ends.

Beside tables they are read to their end, once; beside streams they are streams of ours, whose offsets Spark keeps in the
checkpoint of whoever writes.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from headwater.data.batch import Batch
from headwater.data.frames import pack, unpack_frame
from headwater.errors import FlowError
from headwater.flow.endpoints import Reject, Source
from headwater.flow.ranges import Offset, Piece, RangeRequest, Ranges, Sizes, ranges_of
from headwater.io.memory import Items
from headwater.spark.envelope import ROW
from headwater.spark.keyed import SourceStage
from headwater.spark.native import read_by_driver, reads
from headwater.spark.sources.control import SourceControl
from headwater.spark.titles import titled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS = 2**14  #: of a list in one piece


def check(flow: str, step: str, source: Source, *, streaming: bool) -> None:
    """Raise FlowError, with what to do instead, where a source cannot be read beside DataFrames."""
    what = f"source {step!r} of flow {flow!r}, which is given no DataFrame,"
    if reads(source) is not None or read_by_driver(source) is not source:
        call = "spark.readStream" if streaming else "spark.read"
        raise FlowError(f"{what} is one that Spark reads by itself: give a DataFrame of it, from {call}")
    ranges = None if isinstance(source, Items) else ranges_of(source, RangeRequest(Sizes(1)))
    if ranges is None and not isinstance(source, Items):
        raise FlowError(
            f"{what} is read by the driver, into a log that is kept while Headwater runs the flow: have it do so, with "
            "spark.start(flow, inputs={…}) and streams"
        )
    if not streaming and ranges is not None and not ranges.has_end:
        raise FlowError(f"{what} has no end, and the DataFrames are tables: give a table of it, or streams beside it")


def _ranges(spark: SparkSession, source: Source, columns: tuple[str, ...], *, at_once: bool) -> Ranges:
    if isinstance(source, Items):
        return _Listed(source)
    ranges = ranges_of(source, RangeRequest(Sizes(spark.sparkContext.defaultParallelism), columns, at_once=at_once))
    assert ranges is not None
    return ranges


def rows_at_once(
    spark: SparkSession, step: str, source: Source, columns: tuple[str, ...], prefix: SourceStage
) -> DataFrame:
    """Return the rows of all that a source holds now, those of its columns that are used, and of its end."""
    from headwater.spark.sources.data_source import sent_source, tasks_of, tasks_reader

    ranges = _ranges(spark, source, columns, at_once=True)
    at, pieces = ranges.start(), list[Any]()
    file = sent_source(spark, step, ranges, prefix)
    while not at["ended"]:
        end = ranges.advance(at)
        pieces += ranges.cut(at, end)
        at = end if end != at else {**at, "ended": True}
    tasks = tasks_of(ranges, at, pieces or [None], ends=True)
    make_rows = titled(tasks_reader(step, file, tasks), prefix.title)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(make_rows, ROW)


def rows_as_stream(
    spark: SparkSession, step: str, source: Source, columns: tuple[str, ...], prefix: SourceStage
) -> DataFrame:
    """Return the rows of a source as a stream, which nobody but itself can end."""
    from headwater.spark.sources.data_source import rows_of

    ranges = _ranges(spark, source, columns, at_once=False)
    control = SourceControl(Path(tempfile.mkdtemp(dir=_folder())))
    return rows_of(spark, step, ranges, ranges.start(), prefix, control)


@cache
def _folder() -> str:
    """Return where this process and those that plan its streams tell each other when reading began."""
    folder = tempfile.mkdtemp(prefix="headwater-sources-")
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


class _Listed(Ranges):
    """A list of the driver's, as the batches that it makes and what is no record of it: both travel with whoever reads."""

    has_end = True

    def __init__(self, source: Items) -> None:
        self._batches, self._rejected = list[bytes](), list[list[tuple[str, str]]]()
        rejected: list[tuple[str, str]] = []
        reader = source.open(lambda text, error: rejected.append((text, error)))
        while (batch := reader.read(_RECORDS, 0)) is not None:
            self._batches.append(pack(batch))
            self._rejected.append(rejected[:])
            rejected.clear()

    def start(self) -> Offset:
        """Begin with the first piece."""
        return {"piece": 0, "ended": False}

    def advance(self, at: Offset) -> Offset:
        """Go on by a piece."""
        end = min(at["piece"] + 1, len(self._batches))
        return {"piece": end, "ended": end == len(self._batches)}

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return the pieces between."""
        return [(number,) for number in range(start["piece"], end["piece"])]

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Return the records of a piece."""
        (number,) = piece
        for text, error in self._rejected[number]:
            reject(text, error)
        yield unpack_frame(self._batches[number])
