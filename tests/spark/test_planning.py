"""A micro-batch of one piece is read where it is planned, and Spark is handed what was read; others are read by tasks."""

from __future__ import annotations

import json
from io import BytesIO

import pytest

from headwater import io
from headwater.data.frames import unpack_frame
from headwater.flow.ranges import RangeRequest, Sizes, ranges_of
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.data_source import FrameReader, plain
from waiting import PATIENCE_S

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")

ONE_PIECE, TWO_PIECES = Sizes(2, batch_bytes=1500, piece_bytes=1000), Sizes(2, batch_bytes=1500, piece_bytes=500)
RECORDS = 1000


def reader(tmp_path, sizes, *, may_read=True):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(RECORDS)))
    ranges = ranges_of(io.JsonLines(path, {"n": int}), RangeRequest(sizes))
    sent = tmp_path / f"{tmp_path.name}.flow"
    sent.write_bytes(pyspark.cloudpickle.dumps((ranges, plain(7))))
    return FrameReader("r", sent, ranges.start(), SourceControl(tmp_path), None, may_read=may_read)


def loaded(made):
    """Wait until a reader has loaded what it needs, if it has begun to."""
    if made._loading is not None:
        made._loading.join(PATIENCE_S)


def played(made):
    """Plan and read all micro-batches as Spark does; return the records, and which micro-batches were read at once."""
    records, at_once, at = [], [], made.initialOffset()
    while not at["ended"]:
        end = made.latestOffset(at, None)
        tasks = made.partitions(at, end)
        here = made.getCache(at, end)
        at_once.append(here is not None)
        for table in here if here is not None else (table for task in tasks for table in made.read(task)):
            for frame in table.column("frame").to_pylist():
                batch = unpack_frame(frame)
                records += batch["n"].tolist() if batch.length else []
        loaded(made)
        at = end
    return records, at_once


def test_small_micro_batches_are_read_where_they_are_planned_after_the_first_few(tmp_path):
    records, at_once = played(reader(tmp_path, ONE_PIECE))
    assert records == list(range(RECORDS))
    assert not any(at_once[:2])
    assert all(at_once[3:])
    assert len(at_once) > 5


@pytest.mark.parametrize(("sizes", "may_read"), [(TWO_PIECES, True), (ONE_PIECE, False)])
def test_what_is_several_pieces_or_far_away_is_read_by_tasks(tmp_path, sizes, may_read):
    records, at_once = played(reader(tmp_path, sizes, may_read=may_read))
    assert records == list(range(RECORDS))
    assert not any(at_once[:-1])  # the last one may be a small one


def test_spark_is_handed_what_was_read(tmp_path):
    from pyspark.serializers import read_int, write_with_length
    from pyspark.sql.streaming import python_streaming_source_runner as runner
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

    schema = StructType().add("bucket", IntegerType()).add("target", IntegerType())
    schema = schema.add("seq", LongType()).add("frame", BinaryType())
    made, told = reader(tmp_path, ONE_PIECE), []
    runner.check_support_func(made, BytesIO())  # which it asks first, about things of the kind
    at = made.initialOffset()
    for _ in range(5):
        end = made.latestOffset(at, None)
        asked, answer = BytesIO(), BytesIO()
        for offset in (at, end):
            write_with_length(json.dumps(offset).encode(), asked)
        asked.seek(0)
        runner.partitions_func(made, None, schema, 1000, asked, answer)
        answer.seek(0)
        assert read_int(answer) == 1
        answer.read(read_int(answer))  # the piece itself
        told.append(read_int(answer))
        loaded(made)
        at = end
    not_found, found = runner.PREFETCHED_RECORDS_NOT_FOUND, runner.NON_EMPTY_PYARROW_RECORD_BATCHES
    assert (told[:2], told[3:]) == ([not_found] * 2, [found] * 2)
