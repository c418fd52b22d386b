"""Stages with state over a table that has an end: a bucket after the other, its records in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.spark.broadcast import SentLayout
from headwater.spark.envelope import COUNTS, ROW, STATE, Row, is_of_split
from headwater.spark.executor import Executor
from headwater.spark.seeds import seed_of
from headwater.spark.stages import Layout, Stage
from headwater.spark.titles import title_of, titled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_level_at_once(
    rows: DataFrame,
    sent_layout: SentLayout,
    layout: Layout,
    level: int,
    seeds: Path | None = None,
    *,
    keep: bool = False,
) -> DataFrame:
    """Add the stages of one level to a query over tables.

    Buckets begin with the state in the folder `seeds`, if one is said. With `keep`, as more follows than these tables, what
    they keep leaves the query in rows of its own.
    """
    sorted_rows = rows.repartition(layout.buckets, "bucket").sortWithinPartitions("bucket", "seq")
    run = titled(_on_partition(sent_layout, level, seeds, keep), title_of(layout.steps_of(level)))
    return sorted_rows.mapInArrow(run, ROW)


def _on_partition(
    sent_layout: SentLayout, level: int, seeds: Path | None, keep: bool
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(tables: Iterator[Any]) -> Iterator[Any]:
        from headwater.spark.sources.data_source import in_arrow

        return in_arrow(_run_buckets(sent_layout.layout(), level, _rows(tables), seeds, keep))

    return run


def _rows(tables: Iterator[Any]) -> Iterator[Row]:
    for table in tables:
        bucket, target, seq = (table.column(i).to_pylist() for i in range(3))
        for i, frame in enumerate(table.column(3)):
            yield bucket[i], target[i], seq[i], frame.as_buffer().to_pybytes()


def _run_buckets(layout: Layout, level: int, rows: Iterator[Row], seeds: Path | None, keep: bool) -> Iterator[Row]:
    for bucket, came in groupby(rows, key=itemgetter(0)):
        stage = layout.stage_of_bucket(bucket)
        if stage is None or stage.level != level:  # on the way to a later level, or to a sink
            yield from came
            continue
        executor = Executor(layout, stage, bucket)
        if seeds is not None:
            executor.load(seed_of(seeds, bucket))
        first = next(came)  # how far time has come is known of all splits together, behind all that was read
        came = chain([first], came)
        if _in_pieces(layout, stage) and not is_of_split(first[3]):
            for _, target, _, frame in came:
                yield from executor.take([(target, frame)])
        else:
            yield from executor.take((target, frame) for _, target, _, frame in came)
        if keep:
            yield -1, STATE, bucket, executor.save()
        yield -1, COUNTS, 0, executor.counts()


def _in_pieces(layout: Layout, stage: Stage) -> bool:
    """Say whether rows come in the order of their records: all of one stream, and from where a source is read."""
    entries = [entry for entry in layout.entries if entry.stage == stage.number]
    senders = {sender for entry in entries for sender in entry.senders}
    return len(entries) == 1 and len(senders) == 1 and layout.stages[senders.pop()].kind == "source"
