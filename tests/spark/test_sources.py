"""Ranges give what the source itself gives, however they are cut; the log gives back what it took, whatever happens."""

import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import io
from headwater.data.batch import CREATED, END, Batch, concat_batches
from headwater.data.frames import unpack_frame
from headwater.data.schema import Schema
from headwater.errors import InputError, RunError
from headwater.flow.ranges import RangeRequest, Sizes, ranges_of
from headwater.io.log import Log
from headwater.io.receiving import Receiver
from headwater.io.receiving.rounds import batches_of, entries, last_in, pack_round
from headwater.operators.operator import DEAD
from headwater.spark import sources
from headwater.spark.sources import open_source
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.data_source import plain
from headwater.spark.sources.kafka import records, rows_from
from headwater.spark.sources.logged import LoggedRanges
from headwater_bench.experiments.broker import broker
from headwater_bench.riot.sources import MessageFile, Messages
from waiting import wait_until


def _ranges(source, sizes, *, at_once):
    return ranges_of(source, RangeRequest(sizes, at_once=at_once))


TINY = Sizes(parallel=3, batch_bytes=400, batch_records=50, piece_bytes=60, piece_records=5)
XS = Schema.of({"id": int, "x": str})


def rows_and_rejects(read):
    rejected = []
    rows = [row for batch in read(lambda text, error: rejected.append((text, error))) for row in batch.rows()]
    return rows, rejected


def as_the_source_reads(source):
    def read(reject):
        reader = source.open(reject)
        while (batch := reader.read(7, 1.0)) is not None:
            yield batch
        reader.close()

    return rows_and_rejects(read)


def pieces_of(ranges):
    at, pieces = ranges.start(), []
    while not at["ended"]:
        end = ranges.advance(at)
        assert end != at
        pieces += ranges.cut(at, end)
        at = end
    return pieces


def by_ranges(ranges):
    return rows_and_rejects(lambda reject: (b for piece in pieces_of(ranges) for b in ranges.batches(piece, reject)))


JSON_LINES = st.sampled_from(['{"id": 1, "x": "å"}', '{"id": 2}', "", "nonsense", '{"id": "three"}', "[1]", "{}"])


@given(st.lists(JSON_LINES, max_size=60), st.booleans())
def test_json_lines_by_ranges_are_the_lines_of_the_file(tmp_path_factory, lines, last_has_end):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_text("\n".join(lines) + ("\n" if last_has_end else ""))
    source = io.JsonLines(path, XS)
    assert by_ranges(_ranges(source, TINY, at_once=True)) == as_the_source_reads(source)


CSV_FIELDS = st.sampled_from(['1,"a\nb"', '2,"say ""so"""', "3,plain", "x,y", "4", '5,a"b', '6,"never closed', ""])


@given(st.lists(CSV_FIELDS, max_size=60), st.booleans())
def test_csv_by_ranges_is_the_file_even_where_rows_go_over_lines(tmp_path_factory, rows, last_has_end):
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    path.write_text("id,x\n" + "\n".join(rows) + ("\n" if last_has_end else ""))
    source = io.Csv(path, XS)
    assert by_ranges(_ranges(source, TINY, at_once=True)) == as_the_source_reads(source)


def test_csv_without_quotes_is_cut_into_many_pieces(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,x\n" + "".join(f"{i},t{i}\n" for i in range(500)))
    source = io.Csv(path)
    ranges = _ranges(source, TINY, at_once=True)
    assert len(pieces_of(ranges)) > 30
    assert by_ranges(ranges) == as_the_source_reads(source)


def test_parquet_by_ranges_is_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    writer = io.Parquet(path).open(XS)
    writer.write(Batch.of({"id": np.arange(321), "x": [f"t{i}" for i in range(321)]}, XS))
    writer.close()
    ranges = _ranges(io.Parquet(path), TINY, at_once=True)
    assert len(pieces_of(ranges)) > 10
    assert by_ranges(ranges) == as_the_source_reads(io.Parquet(path))


def test_messages_keep_their_numbers(tmp_path):
    path = tmp_path / "senml.txt"
    path.write_text("".join(f'{i},{{"e":[{i}]}}\n\n' for i in range(90)) + "last, and without end")
    source = MessageFile(path)
    assert by_ranges(_ranges(source, TINY, at_once=True)) == as_the_source_reads(source)


def test_generated_records_are_all_there_at_once_or_when_due():
    source = io.Generate(lambda n: {"x": n}, {"x": int, "at": "time"}, 1e5, count=1000, time="at")
    expected = list(range(1000))
    rows, _ = by_ranges(_ranges(source, TINY, at_once=True))
    assert [row["x"] for row in rows] == expected
    assert rows[-1]["at"] <= time.time_ns() // 1000  # nothing is from the future
    due = _ranges(source, TINY, at_once=False)
    at, seen, moments = due.start(), [], []
    while not at["ended"]:
        end = due.advance(at)
        again = [concat_batches(list(due.batches(piece, print))) for piece in due.cut(at, end)]
        for batch in again:
            seen += batch["x"].tolist()
            moments += batch["at"].tolist()
        at = end
    assert seen == expected
    assert moments == sorted(moments)
    assert moments[-1] - moments[0] == pytest.approx(999 * 10, abs=2)  # microseconds: the rate, not when it was read


def test_a_generator_without_end_cannot_be_read_at_once():
    with pytest.raises(RunError, match="no end"):
        _ranges(Messages("CITY"), TINY, at_once=True).start()


def test_replayed_records_start_over_and_reject_once(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\nbad\n{"id": 2}\n')
    source = io.Replay(io.JsonLines(path, {"id": int}), 1e6, count=120)
    rows, rejects = by_ranges(_ranges(source, TINY, at_once=True))
    assert [row["id"] for row in rows] == [1, 2] * 60
    assert [text for text, _ in rejects] == ["bad"]


def test_a_file_that_was_replaced_by_a_shorter_one_is_not_read_on(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n' * 100)
    ranges = _ranges(io.JsonLines(path, {"id": int}), TINY, at_once=True)
    at = ranges.advance(ranges.start())
    path.write_text('{"id": 1}\n')
    with pytest.raises(InputError, match="was the file replaced"):
        ranges.advance(at)


# -- the log ----------------------------------------------------------------------------------------------------------


def batch_of(*numbers):
    return Batch.of({"n": list(numbers)}, Schema.of({"n": int}))


def read_log(folder):
    return [(port, batch["n"].tolist()) for entry in entries(folder, 0) for port, batch in batches_of(entry.data)]


def say(log, port, batch, position):
    log.append(pack_round([(port, batch)], position, ended=False))


def segments(folder):
    return sorted(folder.glob("*.log"))


def test_a_log_gives_back_what_is_safe_and_nothing_before_that(tmp_path):
    log = Log(tmp_path, segment_bytes=200)
    for n in range(10):
        say(log, 0, batch_of(n, n + 1), n)
        log.sync()
    say(log, 0, batch_of(99), 10)
    assert read_log(tmp_path) == [(0, [n, n + 1]) for n in range(10)]
    assert len(segments(tmp_path)) > 2
    log.close()


@pytest.mark.parametrize("damage", ["cut", "flip", "none"])
def test_a_log_goes_on_after_its_last_whole_entry(tmp_path, damage):
    log = Log(tmp_path)
    say(log, 0, batch_of(1), "one")
    log.sync()
    say(log, DEAD, batch_of(2), "two")
    log._let_go()  # without sync, as after a kill
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:-1]
    elif damage == "flip":
        data[-1] ^= 1
    path.write_bytes(data)
    again = Log(tmp_path)
    assert last_in(tmp_path, again.end).position == ("two" if damage == "none" else "one")
    assert again.end == (2 if damage == "none" else 1)
    say(again, 0, batch_of(3), "three")
    again.sync()
    kept = [(DEAD, [2])] if damage == "none" else []
    assert read_log(tmp_path) == [(0, [1]), *kept, (0, [3])]
    again.close()


def test_a_round_of_letters_and_records_is_there_as_a_whole_or_not_at_all(tmp_path):
    """Else a source would go on after records that no longer are in its log."""
    log = Log(tmp_path)
    log.append(pack_round([(DEAD, batch_of(1)), (0, batch_of(2))], "after both", ended=False))
    log._let_go()
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    again = Log(tmp_path)
    assert last_in(tmp_path, again.end).position is None
    assert read_log(tmp_path) == []
    again.close()


def test_a_damaged_range_is_not_read_as_if_it_were_shorter(tmp_path):
    log = Log(tmp_path)
    say(log, 0, batch_of(1), None)
    log.close()
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        read_log(tmp_path)


def test_a_file_of_the_log_that_is_missing_is_told(tmp_path):
    log = Log(tmp_path, segment_bytes=100)
    for n in range(6):
        say(log, 0, batch_of(n), n)
    log.close()
    segments(tmp_path)[0].unlink()
    with pytest.raises(InputError, match="was the checkpoint copied in part"):
        read_log(tmp_path)


def test_a_received_source_is_taken_up_where_it_was_left(tmp_path):
    first = io.Items([{"n": n} if n != 5 else {"n": "five"} for n in range(40)], {"n": int})
    receiver = Receiver("numbers", first, tmp_path, until_idle=False)
    wait_until(lambda: last_in(tmp_path).ended)
    receiver.close()
    rows, rejects = by_ranges(LoggedRanges(tmp_path, TINY, broadcast=False))
    assert [row["n"] for row in rows] == [n for n in range(40) if n != 5]
    assert [text for text, _ in rejects] == ["{'n': 'five'}"]
    again = Receiver("numbers", first, tmp_path, until_idle=False)
    again.close()
    assert by_ranges(LoggedRanges(tmp_path, TINY, broadcast=True)) == (rows, rejects)


def test_what_was_read_is_removed_from_the_log(tmp_path):
    log = Log(tmp_path, segment_bytes=100)
    for n in range(60):
        say(log, 0, batch_of(n), n)
    log.sync()
    ranges = LoggedRanges(tmp_path, TINY, broadcast=False)
    end = ranges.advance(ranges.advance(ranges.start()))
    before = len(segments(tmp_path))
    ranges.forget(end)
    assert len(segments(tmp_path)) < before
    assert ranges.advance(end) != end
    log.close()


def test_a_source_that_cannot_be_opened_says_so_before_anything_starts(spark, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        open_source(spark, "r", io.JsonLines(tmp_path / "absent", XS), step_index=0, checkpoint=tmp_path)
    with pytest.raises(RunError, match="log beside the checkpoint"):
        open_source(spark, "r", io.Items([{"n": 1}]), step_index=0, checkpoint="hdfs://far/away")


def test_a_file_that_cannot_be_read_is_told_before_java_is_started(tmp_path):
    for source in (io.JsonLines(tmp_path / "absent", XS), io.Csv(tmp_path, XS), MessageFile(tmp_path / "absent")):
        with pytest.raises(InputError, match="cannot read"):
            sources.check(source)


def collected(spark, opened, checkpoint):
    """Run a query until its source has ended; return the plain rows in order."""
    rows = []

    def take(frame, batch_id):
        rows.extend((batch_id, *row) for row in frame.orderBy("seq").collect())

    query = opened.rows.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()
    try:
        while not (query.lastProgress and '"ended": true' in query.lastProgress.sources[0].endOffset):
            assert query.exception() is None
            query.processAllAvailable()
    finally:
        query.stop()
        opened.close()
    return [(bucket, target, unpack_frame(frame)) for _, bucket, target, _, frame in rows]


@pytest.mark.parametrize("kind", ["file", "items"])
def test_spark_reads_every_record_once_and_then_the_end(spark, tmp_path, kind):
    if kind == "file":
        path = tmp_path / "a.jsonl"
        path.write_text("".join(f'{{"n": {n}}}\n' for n in range(2000)) + "bad\n")
        source = io.JsonLines(path, {"n": int})
        sizes = Sizes(parallel=2, batch_bytes=10_000, piece_bytes=1000)
    else:
        source = io.Items([{"n": n} for n in range(2000)] + [{"n": "bad"}], {"n": int})
        sizes = Sizes(parallel=2, batch_bytes=20_000, piece_bytes=1000)
    checkpoint = tmp_path / "checkpoint"
    opened = open_source(spark, "read", source, step_index=3, checkpoint=checkpoint, sizes=sizes)
    frames = collected(spark, opened, checkpoint)
    assert {target for _, target, _ in frames} == {3}
    assert [n for bucket, _, b in frames if bucket == -1 and b.length for n in b["n"].tolist()] == list(range(2000))
    assert next(b["error"].tolist() for bucket, _, b in frames if bucket == -2)[0]
    assert frames[-1][2].watermark == END
    assert sources.way_of(source, tuple(source.schema)) == (
        "in parallel, by ranges" if kind == "file" else "through a log, by the driver"
    )
    again = open_source(spark, "read", source, step_index=3, checkpoint=checkpoint, sizes=sizes)
    assert collected(spark, again, checkpoint) == []


# -- brokers ----------------------------------------------------------------------------------------------------------


def test_messages_of_a_broker_are_in_the_log_once(tmp_path):
    with broker() as url:
        receiver = Receiver("levels", io.Mqtt(url, "levels", {"n": int}, qos=1), tmp_path, until_idle=False)
        reader: Any = receiver._reader
        wait_until(reader.subscribed.is_set)
        writer = io.Mqtt(url, "levels", qos=1).open(Schema.of({"n": int}))
        writer.write(batch_of(*range(100)))
        writer.flush()
        assert writer.waiting == 0
        wait_until(lambda: len(numbers_in(tmp_path)) >= 100)
        writer.close()
        receiver.close()
    assert numbers_in(tmp_path) == list(range(100))


class Held:
    """A source that holds its records until they are committed, as a broker does."""

    schema = Schema.of({"n": int})
    resume = "sender"

    def __init__(self, count):
        self.kept, self.position, self.committed = list(range(count)), 0, 0

    def open(self, reject):
        self.kept, self.position, self.committed = self.kept[self.committed :], 0, 0
        return self

    def read(self, limit, timeout_s):
        handed = self.kept[self.position : self.position + 10]
        self.position += len(handed)
        return batch_of(*handed) if handed else None

    def commit(self, position):
        self.committed = position

    def close(self):
        pass


def test_what_is_not_safe_in_the_log_is_not_acknowledged(tmp_path, monkeypatch):
    source = Held(50)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "append", full_disk)
        receiver = Receiver("levels", source, tmp_path, until_idle=False)
        wait_until(lambda: receiver.error)
        receiver.close()
    assert "source 'levels' stopped: the disk is full" in str(receiver.error)
    assert source.committed == 0
    again = Receiver("levels", source, tmp_path, until_idle=False)
    wait_until(lambda: last_in(tmp_path).ended)
    again.close()
    assert numbers_in(tmp_path) == list(range(50))
    assert source.committed == 50


def full_disk(log, *entry, **options):
    raise InputError("the disk is full")


def numbers_in(folder):
    return [n for _, numbers in read_log(folder) for n in numbers]


# -- Kafka ------------------------------------------------------------------------------------------------------------


def test_kafka_without_its_connector_is_one_clear_message(spark, tmp_path):
    source = io.Kafka("127.0.0.1:9092", "levels", {"n": int})
    with pytest.raises(
        RunError,
        match=r"connector to Kafka is not there.*spark-sql-kafka-0-10_2.13-4\.2\.0\.jar.*kafka-clients-3\.9\.2\.jar",
    ):
        open_source(spark, "read", source, step_index=0, checkpoint=tmp_path)


def test_what_the_connector_reads_becomes_rows_and_ends_when_told(spark, tmp_path):
    """The connector itself is not there; another source of Spark's stands in with the columns that it has."""
    columns = ["'t' AS topic", "0 AS partition", "value AS offset", "timestamp"]
    value = """CAST(concat('{"n": ', value, '}') AS BINARY) AS value"""
    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    source, control = io.Kafka("127.0.0.1:9092", "t", {"n": int}), SourceControl(tmp_path)
    rows = rows_from(spark, made.selectExpr(*columns, value), "read", source, plain(0), control)
    control.finish()
    taken = []
    query = rows.writeStream.foreachBatch(
        lambda frame, batch_id: taken.extend(frame.orderBy("seq").collect()) if not ended(taken) else None
    ).start()
    try:
        wait_until(lambda: ended(taken))
    finally:
        query.stop()
    batches = [unpack_frame(row.frame) for row in taken]
    assert batches[-1].watermark == END
    numbers = [n for batch in batches if batch.length for n in batch["n"].tolist()]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) >= 100


def ended(rows):
    return any(unpack_frame(row.frame).watermark == END for row in rows)


@pytest.mark.parametrize("payload", ["json", "text"])
def test_values_of_kafka_become_records_and_dead_letters(payload):
    table = pa.record_batch(
        {
            "topic": ["t", "t", "t"],
            "partition": pa.array([1, 1, 1], pa.int32()),
            "offset": pa.array([7, 8, 9], pa.int64()),
            "value": [b'{"n": 1}', b"\xff", b'{"n": 3}'],
            "timestamp": pa.array([1000, 2000, 3000], pa.timestamp("us", "UTC")),
        }
    )
    source = io.Kafka("127.0.0.1:9092", "t", {"n": int} if payload == "json" else None, payload=payload)
    (dead, letter), (port, batch) = records("read", source, iter([table]))
    assert (dead, port) == (DEAD, 0)
    assert letter["error"].tolist()[0].startswith("t partition 1 offset 8: ")
    expected = [{"n": 1}, {"n": 3}] if payload == "json" else [{"text": '{"n": 1}'}, {"text": '{"n": 3}'}]
    assert batch.rows() == expected
    assert batch.stamps[:, CREATED].tolist() == [1_000_000, 3_000_000]


def test_a_source_that_cannot_be_sent_is_named(spark, tmp_path):
    lock = threading.Lock()
    source = io.Generate(lambda n: {"n": n, "held": lock.locked()}, {"n": int}, 10, count=1)
    with pytest.raises(RunError, match=r"source 'made' cannot be read on Spark.*cannot be sent"):
        open_source(spark, "made", source, step_index=0, checkpoint=tmp_path)
