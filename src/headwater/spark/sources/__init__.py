"""Where records come from on Spark: by ranges in parallel, where a source can be read so, all else through a log."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from headwater.errors import FlowError, RunError
from headwater.flow.endpoints import Source, check_source
from headwater.flow.ranges import Offset, RangeRequest, Ranges, Sizes, ranges_of
from headwater.flow.splits import has_splits
from headwater.flow.steps import OnTheWay
from headwater.io.receiving import Receiver
from headwater.spark.heads import Head
from headwater.spark.native import NativeSource, NativeTable, read_by_driver, reads, table_in
from headwater.spark.places import place_of
from headwater.spark.sources import limits
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.logged import LoggedRanges
from headwater.spark.sources.pace import Pace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from headwater.spark.sources.data_source import Prefix


@dataclass
class SparkSource:
    """A source that Spark reads: its rows, and how to end it.

    `finish` lets it end where it is, as a source does that comes to its end: what was read is processed, and marks
    of the end follow. A query that is to be taken up again later is stopped without it. `close` comes last.
    """

    rows: DataFrame
    _control: SourceControl
    _receiver: Receiver | None
    _temporary: Path | None
    _backlog: NativeSource | None = None  #: which cannot tell its end, and is to be read up to what it holds
    _ranges: Ranges | None = None

    def begun_ns(self) -> int | None:
        """Return since when it is read, by the wall clock; None if it is not yet."""
        return self._control.begun_ns()

    def finish(self, until_ns: int | None = None) -> None:
        """Read no more, and say so in the rows; what a generator's rate made due before a moment is still read."""
        if self._receiver is not None:
            self._receiver.close()
        self._control.finish(until_ns)

    def pause(self) -> None:
        """Read no more for now: a later run goes on here."""
        self._control.pause()

    def follow(self, query: StreamingQuery) -> None:
        """End a source that cannot tell its end, once all has been read that it was to be read of."""
        if self._backlog is not None and self._backlog.is_read(query):
            self._backlog = None
            self.finish()

    def share(self, at: Offset | None) -> float | None:
        """Return which part of it was read up to an offset, of 1; None where that cannot be told."""
        if self._ranges is None:
            return None
        return 0.0 if at is None else self._ranges.share(at)

    @property
    def dropped(self) -> int:
        """Records that came in this run and had no room with who reads them."""
        return 0 if self._receiver is None else self._receiver.dropped

    def check(self) -> None:
        """Raise what the source broke with, if it did."""
        if self._receiver is not None and self._receiver.error is not None:
            raise self._receiver.error

    def close(self) -> None:
        """Stop reading, and remove what only this run needed."""
        if self._receiver is not None:
            self._receiver.close()
        self._control.clear()
        if self._temporary is not None:
            rmtree(self._temporary, ignore_errors=True)


def open_source(
    spark: SparkSession,
    step: str,
    source: Source,
    *,
    step_index: int,
    checkpoint: str | Path | None,
    available_now: bool = False,
    prefix: Prefix | None = None,
    sizes: Sizes | None = None,
    head: Head | None = None,
    beside: Mapping[str, NativeTable] | None = None,
    begin: Offset | None = None,
    target_s: float | None = None,
    way: Sequence[OnTheWay] = (),
) -> SparkSource:
    """Start reading a source; raises what it has to say if it cannot be opened.

    `prefix` runs on the records where they are read; without one, rows hold the source's batches. With `available_now`,
    generated records are not waited for, and any other source ends when it has nothing for the moment. Where a `head`
    says which columns are used, a source that can leaves the others alone; what Spark reads itself goes through the head's
    own steps, which may join it with others `beside` it. A query that is new begins at `begin`, if that is
    given: where another runner has left the source. `target_s` is how long a micro-batch should take where more waits. `way`
    leads to where event time is read, for splits that the driver reads.
    """
    from headwater.spark.sources.data_source import plain, rows_of
    from headwater.spark.sources.ending import ended

    prefix = prefix or plain(step_index)
    sizes = sizes or Sizes(spark.sparkContext.defaultParallelism)
    native = reads(source)
    columns = None if head is None else head.columns
    ranges = None if native else ranges_of(source, RangeRequest(sizes, columns, at_once=available_now))
    folder, temporary = _folder(checkpoint, step_index, lasting=not (native or ranges))
    control = SourceControl(folder)
    receiver = None
    if native is not None:
        control.clear()
        if begin is not None:
            native.begin_at(begin["position"])
        if target_s is not None:
            limits.check(spark)
            sizes = replace(sizes, batch_records=limits.first_of(sizes.batch_records))
        table = table_in(native)
        if table is None:
            rows = native.rows(spark, step, prefix, control, sizes)
        else:
            head = head or Head.none(step, source.schema)
            frames = {name: each.frame(spark, sizes) for name, each in {step: table, **(beside or {})}.items()}
            rows = ended(spark, frames, head, prefix, control)
        ends = available_now or all(each.has_end for each in (native, *(beside or {}).values()))
        return SparkSource(rows, control, None, temporary, native if ends else None)
    if ranges is None:
        receiver = Receiver(step, read_by_driver(source), folder / "log", until_idle=available_now, way=way)
        ranges = LoggedRanges(folder / "log", sizes, broadcast=not spark.sparkContext.master.startswith("local"))
    first = ranges.start()  # says now what is wrong with it, not in a process far away
    control.clear()
    pace = None if target_s is None else Pace(target_s)
    rows = rows_of(spark, step, ranges, begin or first, prefix, control, pace)
    return SparkSource(rows, control, receiver, temporary, _ranges=ranges)


def check(source: Source) -> None:
    """Raise what a source has to say, if it cannot be read, before Java has to be started."""
    native = reads(source)
    if native is None:
        check_source(source)
        _check_splits(source)
    else:
        native.check()


def _check_splits(source: Source) -> None:
    """Raise if a source has splits and its ranges do not say of which one a piece is: most of it would be late."""
    ranges = ranges_of(source, RangeRequest(Sizes(1))) if has_splits(source) else None
    if ranges is not None and type(ranges).split_of is Ranges.split_of:
        kind, reader = type(source).__name__, type(ranges).__name__
        raise FlowError(
            f"{kind} has splits, and {reader}, by which it is read on Spark, does not say which split a piece is of; give "
            f"{reader} the methods split_of and behind, or leave out `ranges` of {kind}"
        )


def changed(source: Source, at: Offset) -> str:
    """Say how a source is no longer what was read of it up to an offset of a checkpoint; nothing if it is."""
    ranges = None if reads(source) else ranges_of(source, RangeRequest(Sizes(1)))
    return "" if ranges is None else ranges.changed(at)


def way_of(source: Source, columns: tuple[str, ...]) -> str:
    """Return how a source, of which some columns are used, is read on Spark, in words."""
    native = reads(source)
    if native is not None:
        return native.way
    ranges = ranges_of(source, RangeRequest(Sizes(1), columns))
    if ranges is None:
        return "through a log, by the driver"
    if ranges.columns is None:
        return "in parallel, by ranges"
    few = f"{len(ranges.columns)} of {len(source.schema)} columns: {', '.join(ranges.columns)}"
    return f"in parallel, by ranges, {few}"


def _folder(checkpoint: str | Path | None, step_index: int, *, lasting: bool) -> tuple[Path, Path | None]:
    """Return the folder for what is kept of a source, and what of it must be removed at the end."""
    place = None if checkpoint is None else place_of(checkpoint)
    if place is not None and place.is_far:
        if lasting:
            raise RunError(
                f"a source that cannot be read twice needs a log beside the checkpoint, and {place} is not a folder "
                "of this machine; give a folder that the driver can write"
            )
        place = None
    temporary = Path(tempfile.mkdtemp(prefix="headwater-source-")) if place is None else None
    base = temporary if place is None else place.folder
    assert base is not None
    folder = base / "sources" / str(step_index)
    folder.mkdir(parents=True, exist_ok=True)
    return folder, temporary
