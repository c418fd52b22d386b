"""Checkpoints that go from one runner to the other, as far as no Spark has to be started for it."""

from __future__ import annotations

import json
import time

import pytest

from headwater import Flow, engine, io, retry
from headwater.data.batch import Batch
from headwater.deploy.takeover import take_over
from headwater.engine.checkpoint.listing import summaries
from headwater.engine.checkpoint.moment import moment_of
from headwater.engine.checkpoint.store import Store
from headwater.errors import RunError
from headwater.io.transactions import ledger_of
from headwater.spark.checkpoint import Checkpoint
from headwater.spark.moment import offset_of
from headwater.spark.seeds import waiting_in
from headwater.spark.sources.kafka import KafkaReading
from killed import running
from moved_flow import built, write_inputs, written
from waiting import PATIENCE_S

RECORDS = 1500
NUMBERS = {"n": int}


@pytest.fixture
def folders(tmp_path):
    """Two folders with the same inputs, and of the second what an undisturbed run makes of them."""
    moving, whole = tmp_path / "moving", tmp_path / "whole"
    for folder in (moving, whole):
        folder.mkdir()
        write_inputs(folder, RECORDS)
    engine.run(built(whole, 1e9))
    return moving, whole


def cut_off(flow, checkpoint, when=lambda each: True, **options):
    """Run until a checkpoint is there as it should be, and give up at once, as a kill would."""
    running = engine.start(flow, checkpoint=checkpoint, **{"every": "20 ms", **options})
    until = time.monotonic() + PATIENCE_S
    while not (any(checkpoint.glob("*.checkpoint")) and when(summaries(checkpoint)[-1])):
        assert time.monotonic() < until, "no such checkpoint"
        time.sleep(0.01)
    running.abort()
    running.wait()


def lines(path, numbers):
    with path.open("a") as file:
        file.writelines(f'{{"n":{n}}}\n' for n in numbers)
    return io.JsonLines(path, NUMBERS)


def copying(source, sink, name="copying"):
    flow = Flow(name)
    flow.read("read", source).write("write", sink)
    return flow


def there_and_back(flow, checkpoint, tmp_path, number=0):
    there, back = tmp_path / f"there {number}", tmp_path / f"back {number}"
    take_over(flow, checkpoint, there, buckets=3)
    take_over(flow, there, back)
    return back


def test_state_of_every_kind_goes_there_and_back(folders, tmp_path):
    moving, whole = folders
    checkpoint = tmp_path / "kept"
    for number, parallel in enumerate((1, 2, 3)):
        seen = 200 * (number + 1)
        cut_off(
            built(moving, 1000, parallel), checkpoint, lambda each, seen=seen: (each.positions["levels"][0] or 0) > seen
        )
        checkpoint = there_and_back(built(moving, 1000, parallel), checkpoint, tmp_path, number)
    engine.run(built(moving, 1e9), checkpoint=checkpoint)
    found, expected = written(moving), written(whole)
    for name, rows in expected.items():
        assert rows == found[name], name


def test_a_checkpoint_of_lanes_goes_there_and_back(folders, tmp_path):
    moving, whole = folders
    checkpoint = tmp_path / "kept"
    with running(lambda: engine.run(built(moving, 1000), checkpoint=checkpoint, every="20 ms", lanes=2)):
        until = time.monotonic() + PATIENCE_S
        while not (
            any(checkpoint.glob("*.checkpoint")) and (summaries(checkpoint)[-1].positions["levels"][0] or 0) > 300
        ):
            assert time.monotonic() < until, "no such checkpoint"
            time.sleep(0.01)
    assert Store(checkpoint).latest().content["lanes"] == 2
    back = there_and_back(built(moving, 1000), checkpoint, tmp_path)
    engine.run(built(moving, 1e9), checkpoint=back)
    assert written(moving) == written(whole)


def test_what_was_on_its_way_is_processed_and_waits_for_its_sink(tmp_path):
    source, out = lines(tmp_path / "in.jsonl", range(300)), tmp_path / "out.jsonl"

    def flow(rest_s):
        def slow(record):
            time.sleep(rest_s)
            return {"n": record["n"] + 1}

        made = Flow("slow")
        made.read("read", source).map("slow", slow, out=NUMBERS).write("write", io.JsonLines(out))
        return made

    cut_off(flow(0.02), tmp_path / "kept", lambda each: sum(each.waiting.values()) > 100, take=1)
    moved = take_over(flow(0), tmp_path / "kept", tmp_path / "there")
    assert moved.waiting["write"] > 100
    take_over(flow(0), tmp_path / "there", tmp_path / "back")
    report = engine.run(flow(0), checkpoint=tmp_path / "back")
    assert report.extra["checkpoints"]["restored"] == moved.waiting
    assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == list(range(1, 301))


def test_a_checkpoint_that_was_moved_is_not_gone_on_from(tmp_path):
    flow = copying(lines(tmp_path / "in.jsonl", range(10)), io.JsonLines(tmp_path / "out.jsonl"))
    kept, there = tmp_path / "kept", tmp_path / "there"
    engine.run(flow, checkpoint=kept)
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file() and path.name != "lock"}
    take_over(flow, kept, there)
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(RunError, match=f"{kept} was moved to {there} at .*, for Spark: go on from there.* remove"):
        engine.run(flow, checkpoint=kept)
    with pytest.raises(RunError, match="was moved to"):
        take_over(flow, kept, tmp_path / "elsewhere")
    (kept / "moved").unlink()
    engine.run(flow, checkpoint=kept)


def test_what_cannot_be_moved_is_told_and_nothing_is_written(tmp_path):
    source, out = lines(tmp_path / "in.jsonl", range(10)), io.JsonLines(tmp_path / "out.jsonl")
    flow, kept, new = copying(source, out), tmp_path / "kept", tmp_path / "new"
    engine.run(flow, checkpoint=kept)

    def refused(why, flow=flow, origin=kept, target=new, **options):
        there = set(tmp_path.rglob("*"))
        with pytest.raises(RunError, match=why):
            take_over(flow, origin, target, **options)
        assert set(tmp_path.rglob("*")) == there

    refused("no such folder; is the path right", origin=tmp_path / "away")
    refused("neither of the engine nor of Spark", origin=tmp_path)
    refused("is one of the engine's already", on="engine")
    refused("there is no runner 'sprak'.*did you mean 'spark'", on="sprak")
    refused("is there already; give a new folder", target=tmp_path)
    refused("is in the checkpoint that it is made of", target=kept / "new")
    refused("buckets are Spark's parts of keys", buckets=0)
    refused("belongs to flow 'copying', not to 'another'", copying(source, out, "another"))
    more = copying(source, out)
    more.read("read too", source).write("write too", io.Discard())
    refused("had no step 'read too', 'write too' then; run it once more where it ran", more)


def test_a_step_that_spark_has_not_is_named(tmp_path):
    made = Flow("stops")
    read = made.read("read", lines(tmp_path / "in.jsonl", range(10)))
    read.map("strict", lambda record: record, out=NUMBERS, on_error="stop").write("write", io.Discard())
    engine.run(made, checkpoint=tmp_path / "kept")
    with pytest.raises(RunError, match="step 'strict' cannot run on Spark: its on_error is 'stop'"):
        take_over(made, tmp_path / "kept", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_sinks_go_on_behind_what_they_have(tmp_path):
    """A part that was prepared before a kill counts, whoever opens the sink first."""
    source = lines(tmp_path / "in.jsonl", range(2000))
    paced = io.Replay(source, rate=1000, loop=False)
    flow = copying(paced, io.JsonLines(tmp_path / "out.jsonl"))
    cut_off(flow, tmp_path / "kept", lambda each: (each.positions["read"][0] or 0) > 100)
    moved = take_over(flow, tmp_path / "kept", tmp_path / "there")
    there = Checkpoint(tmp_path / "there")
    sink = io.JsonLines(tmp_path / "out.jsonl")
    for after in (there.after(), None):  # Spark's first run, and one that was killed in its first micro-batch
        opened = sink.transaction(
            io.JsonLines(tmp_path / "in.jsonl", NUMBERS).schema, ledger_of(there.folder, "write", after)
        )
        assert opened.committed == moved.part
        opened.close()
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == moved.positions["read"]


def csv_rows(folder, first, stop):
    with (folder / "in.csv").open("a") as file:
        file.writelines([*(["n\n"] if not first else []), *(f"{n}\n" for n in range(first, stop))])
    return io.Csv(folder / "in.csv", NUMBERS)


def followed_rows(folder, first, stop):
    csv_rows(folder, first, stop)
    return io.Csv(folder / "in.csv", NUMBERS, follow=True)


def files(folder, first, stop):
    (folder / "in").mkdir(exist_ok=True)
    for at in range(first, stop, 10):
        lines(folder / "in" / f"{at:03}.jsonl", range(at, at + 10))
    return io.Folder(folder / "in", schema=NUMBERS, settled="0 s")


def items(folder, first, stop):
    return io.Items([{"n": n} for n in range(stop)])


def generated(folder, first, stop):
    return io.Generate(lambda n: {"n": n}, NUMBERS, 1e6, count=stop)


def rows(folder, first, stop):
    engine.run(copying(io.Items([{"n": n} for n in range(first, stop)]), io.Sqlite(folder / "in.db", "rows")))
    return io.Sqlite(folder / "in.db", "rows", schema=NUMBERS)


@pytest.mark.parametrize("source", [csv_rows, followed_rows, files, items, generated, rows])
def test_every_source_goes_on_where_it_was(tmp_path, source):
    out, checkpoint = tmp_path / "out.jsonl", tmp_path / "kept"
    for number in range(3):
        flow = copying(source(tmp_path, 100 * number, 100 * (number + 1)), io.JsonLines(out))
        until_written(flow, checkpoint, out, 100 * (number + 1))
        checkpoint = there_and_back(flow, checkpoint, tmp_path, number)
    assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == list(range(300))


def until_written(flow, checkpoint, out, count):
    """Run to the end, or until all is written, and stop."""
    running = engine.start(flow, checkpoint=checkpoint)
    until = time.monotonic() + PATIENCE_S
    while not running.done.is_set() and not (out.exists() and len(out.read_text().splitlines()) >= count):
        assert time.monotonic() < until, "not all is written"
        time.sleep(0.01)
    running.stop()
    running.wait()


class Sent:
    """A sender that waits for an acknowledgement, and sends again what it has none for; it never ends."""

    resume = "sender"

    def __init__(self, numbers):
        self.unacknowledged = list(numbers)
        self.schema = io.Items([], NUMBERS).schema

    def open(self, reject):
        return SentReader(self)


class SentReader:
    def __init__(self, sender):
        self._sender, self.position = sender, 0

    def read(self, limit, timeout_s):
        numbers = self._sender.unacknowledged[self.position : self.position + limit]
        self.position += len(numbers)
        if not numbers:
            time.sleep(min(timeout_s, 0.01))
        return Batch.of_rows([{"n": n} for n in numbers], self._sender.schema)

    def commit(self, position):
        del self._sender.unacknowledged[:position]
        self.position -= position

    def close(self):
        pass


def test_what_a_sender_knows_to_be_safe_goes_along(tmp_path):
    sender, out = Sent(range(300)), tmp_path / "out.jsonl"
    flow, checkpoint = copying(sender, io.JsonLines(out)), tmp_path / "kept"
    for number in range(2):
        until_written(flow, checkpoint, out, 300 * (number + 1))
        checkpoint = there_and_back(flow, checkpoint, tmp_path, number)
        assert not sender.unacknowledged
        sender.unacknowledged += range(300 * (number + 1), 300 * (number + 2))
    until_written(flow, checkpoint, out, 900)
    assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == list(range(900))


def handed_out_in_part(checkpoint, count):
    """Have a checkpoint say that so many records of the first round were handed out when it was made."""
    store = Store(checkpoint)
    last = store.latest()
    for tasks in last.content["tasks"].values():
        tasks[:] = [{**each, "state": 0, "whole": True} for each in tasks]
    last.content["positions"]["read"] = [(0, count)]
    store.write(last.number + 1, last.content, [b""])


def test_the_rest_of_a_round_that_was_handed_out_in_part_is_on_its_way(tmp_path):
    flow, kept, there = (
        copying(Sent(range(300)), io.JsonLines(tmp_path / "out.jsonl")),
        tmp_path / "kept",
        tmp_path / "there",
    )
    until_written(flow, kept, tmp_path / "out.jsonl", 300)
    handed_out_in_part(kept, 120)
    moved = take_over(flow, kept, there)
    assert moved.positions["read"] == 1
    (batches,) = waiting_in(there / "seeds", Checkpoint(there).takeover()).values()
    assert [row["n"] for batch in batches for row in batch.rows()] == list(range(120, 300))


def test_a_step_that_fails_once_at_the_rest_of_a_round_is_tried_again(tmp_path):
    failing = []

    def fragile(record):
        if failing:
            failing.pop()
            raise OSError("away for a moment")
        return record

    flow, out, kept = Flow("fragile"), tmp_path / "out.jsonl", tmp_path / "kept"
    read = flow.read("read", Sent(range(300)))
    tried = read.map("fragile", fragile, out=NUMBERS, on_error=retry(times=3, backoff="1 ms"))
    tried.write("write", io.JsonLines(out))
    until_written(flow, kept, out, 300)
    handed_out_in_part(kept, 120)
    failing.append(True)
    moment = moment_of(kept, flow)
    assert not failing
    assert [row["n"] for batch in moment.waiting["write"] for row in batch.rows()] == list(range(120, 300))


def test_what_is_read_from_its_beginning_after_every_stop_is_refused(tmp_path):
    class Anew(Sent):
        resume = "beginning"

    flow = copying(Anew([1, 2, 3]), io.JsonLines(tmp_path / "out.jsonl"))
    until_written(flow, tmp_path / "kept", tmp_path / "out.jsonl", 3)
    with pytest.raises(RunError, match=r"source 'read' .* cannot be gone on with: it tells no position"):
        take_over(flow, tmp_path / "kept", tmp_path / "there")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out.jsonl"]


def test_kafka_goes_on_by_the_offsets_of_its_partitions():
    reading = KafkaReading(io.Kafka("127.0.0.1:1", "levels", NUMBERS))
    assert reading.position_in(['{"levels":{"0":17,"1":3}}', '{"ended":false}']) == {"0": 17, "1": 3}
    flow = copying(io.Kafka("127.0.0.1:1", "levels", NUMBERS), io.Discard())
    assert offset_of(flow, "read", {"0": 17, "1": 3}) == {"position": {"0": 17, "1": 3}, "ended": False}
