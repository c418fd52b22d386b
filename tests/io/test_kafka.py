"""Kafka on the engine, with a broker of its own on loopback; skipped where its jars or its client are not there."""

import json
import time
from datetime import timedelta

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark")  # brings the Java that the broker runs on

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater import Flow, col, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.deploy.takeover import take_over
from headwater.errors import InputError
from headwater.io.transactions.journal import Journal
from headwater.spark.sinks import guarantee, open_sink
from headwater_bench.servers.kafka import JARS, broker
from kafka_backlog import backlog_of, closed, fill_splits, value_of
from killed import killed_until
from split_source import counted, hour_in, lines, plainly, windows_in
from waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(not list(JARS.glob("kafka_2*.jar")), reason=f"no jars of Kafka in {JARS}")


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture
def topic(servers, request):
    name = f"t{abs(hash(request.node.name))}"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 3, 1)]).values():
        made.result(PATIENCE_S)
    return name


def held(servers, topic):
    """Return what a topic holds for a reader that takes only what is committed, by another client."""
    given = {"group.id": "witness", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, **given})
    ends = set(range(3))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found = []
    until = time.monotonic() + PATIENCE_S
    while ends and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error() is None:
            found.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ends.discard(message.partition())
    consumer.close()
    return found


def fill(servers, topic, numbers):
    producer = Producer({"bootstrap.servers": servers})
    for n in numbers:
        producer.produce(topic, json.dumps({"n": n}).encode(), f"k{n % 5}".encode(), headers=[("unit", b"cm")])
    assert producer.flush(PATIENCE_S) == 0


def writing(servers, topic, count):
    flow = Flow("writing")
    numbers = io.Generate(lambda n: {"n": n}, {"n": int}, rate=20_000, count=count)
    flow.read("in", numbers).select("keyed", "n", k=col.n % 5).write("out", io.Kafka(servers, topic, key="k"))
    return flow


def reading(servers, topic, out, **options):
    flow = Flow("reading")
    flow.read("in", io.Kafka(servers, topic, {"n": int}, **options)).write("out", io.JsonLines(out))
    return flow


def run_until(flow, done, **options):
    run = engine.start(flow, **options)
    until = time.monotonic() + PATIENCE_S
    while not done() and time.monotonic() < until:
        time.sleep(0.02)
    run.stop()
    return run.wait(PATIENCE_S)


def murmur2(data):
    """Hash bytes as Java's clients do, by the definition of MurmurHash2 with their seed."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_keys_headers_and_values_come_back(servers, topic, tmp_path):
    out = tmp_path / "out.jsonl"
    flow = Flow("through")
    rows = [{"n": n, "tank": f"t{n % 3}", "about": {"unit": "cm"}} for n in range(300)]
    source = io.Items(rows, {"n": int, "tank": str, "about": "any"})
    flow.read("in", source).write("out", io.Kafka(servers, topic, key="tank", headers="about"))
    engine.run(flow)
    by_key = {}
    for message in held(servers, topic):
        assert message.headers() == [("unit", b"cm")]
        by_key.setdefault(message.key(), []).append((message.partition(), json.loads(message.value())))
    for number, key in enumerate((b"t0", b"t1", b"t2")):
        assert {partition for partition, _ in by_key[key]} == {
            (murmur2(key) & 0x7FFFFFFF) % 3
        }  # as with Java's clients
        assert [value["n"] for _, value in by_key[key]] == list(range(number, 300, 3))
    run_until(reading(servers, topic, out, key_column="key", headers="about"), lambda: len(lines(out)) == 300)
    assert sorted(lines(out), key=lambda row: row["n"])[1] == {"n": 1, "key": "t1", "about": {"unit": "cm"}}


def test_a_flow_that_is_killed_has_every_record_in_the_topic_once(servers, topic, tmp_path):
    kills = killed_until(
        None,
        lambda: engine.run(writing(servers, topic, 20_000), checkpoint=tmp_path / "checkpoint", every="50 ms"),
        kills=4,
        longest_s=1.0,
        ends=True,
    )
    assert kills
    # a broker says that it commits, and lets readers see it a moment later
    wait_until(lambda: len(held(servers, topic)) >= 20_000, "what was committed")
    assert sorted(json.loads(message.value())["n"] for message in held(servers, topic)) == list(range(20_000))


@pytest.fixture
def on_spark(servers, topic, tmp_path):
    """Open a topic as the driver of a run on Spark does; Java is not needed for that."""
    flow = Flow("numbers")
    numbers = flow.read("in", io.Items([], {"n": int, "k": str}))
    numbers.write("out", io.Kafka(servers, topic, options={"kafka.message.max.bytes": "100000"}))
    assert guarantee(flow.steps["out"]) == "exactly once"
    return lambda: open_sink(flow.steps["out"], tmp_path / "checkpoint", ("k",))


def of(numbers):
    rows = {"n": list(numbers), "k": [f"k{n % 5}" for n in numbers]}
    return Batch.of(rows, Schema.of({"n": int, "k": str}))


class KilledError(BaseException):
    """Stands for the end of a process: nobody closes anything."""


def amid_a_transaction(patch):
    class Dying(Producer):  # type: ignore[misc]  # the client is not typed
        def commit_transaction(self, *given):
            Dying.times = getattr(Dying, "times", 0) + 1
            if Dying.times == 2:
                raise KilledError
            return super().commit_transaction(*given)

    patch.setattr("headwater.io.kafka.transactions.Producer", Dying)


def before_it_is_noted(patch):
    commit = Journal.commit

    def dying(journal, number, *said):
        if number == 1:
            raise KilledError
        return commit(journal, number, *said)

    patch.setattr(Journal, "commit", dying)


@pytest.mark.parametrize("killed", [amid_a_transaction, before_it_is_noted], ids=lambda each: each.__name__)
def test_a_micro_batch_of_spark_is_in_the_topic_once_whenever_its_driver_is_killed(
    servers, topic, on_spark, monkeypatch, killed
):
    with monkeypatch.context() as patch:
        killed(patch)
        sink = on_spark()
        sink.write(of(range(10)))
        sink.commit(0)
        sink.write(of(range(10, 30)))
        with pytest.raises(KilledError):
            sink.commit(1)
    again = on_spark()
    assert again.committed == 0
    again.write(of(range(10, 30)))
    again.commit(1)
    again.write(of(range(30, 40)))
    again.commit(2)
    again.close()
    wait_until(lambda: len(held(servers, topic)) >= 40, "what was committed")
    found = held(servers, topic)
    assert sorted(json.loads(message.value())["n"] for message in found) == list(range(40))
    assert {message.key() for message in found} == {f"k{n}".encode() for n in range(5)}


def test_what_is_too_large_for_a_message_is_told_before_it_holds_up_the_others(on_spark):
    sink = on_spark()
    rows = {"n": [1, 2, 3], "k": ["a", "b" * 100_000, "c"]}
    refused = sink.write(Batch.of(rows, Schema.of({"n": int, "k": str})))
    assert refused == {1: "200,114 bytes are more than a message may have"}
    sink.close()


def test_a_topic_is_read_once_by_runs_that_are_killed(servers, topic, tmp_path):
    out, count = tmp_path / "out.jsonl", 5_000
    fill(servers, topic, range(count))
    flow = reading(servers, topic, out, group="watched")
    killed_until(
        lambda: len(lines(out)) == count,
        lambda: engine.run(flow, checkpoint=tmp_path / "checkpoint", every="20 ms"),
        kills=4,
    )
    fill(servers, topic, range(count, count + 100))
    run_until(flow, lambda: len(lines(out)) >= count + 100, checkpoint=tmp_path / "checkpoint")
    assert sorted(row["n"] for row in lines(out)) == list(range(count + 100))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "watched"})
    told = consumer.committed([TopicPartition(topic, partition) for partition in range(3)], timeout=PATIENCE_S)
    consumer.close()
    assert sum(max(0, each.offset) for each in told) == count + 100


def test_a_checkpoint_that_goes_to_spark_and_back_has_the_offsets_of_every_partition(servers, topic, tmp_path):
    out, there, back = tmp_path / "out.jsonl", tmp_path / "there", tmp_path / "back"
    fill(servers, topic, range(500))
    flow = reading(servers, topic, out)
    run_until(flow, lambda: len(lines(out)) == 500, checkpoint=tmp_path / "checkpoint")
    fill(servers, topic, range(500, 800))
    taken = take_over(flow, tmp_path / "checkpoint", there)
    offsets = taken.positions["in"]
    assert isinstance(offsets, dict)
    assert sum(offsets.values()) == 500
    take_over(flow, there, back)
    run_until(flow, lambda: len(lines(out)) >= 800, checkpoint=back)
    assert sorted(row["n"] for row in lines(out)) == list(range(800))


def test_what_is_no_record_is_a_dead_letter_with_its_place(servers, topic, tmp_path):
    producer = Producer({"bootstrap.servers": servers})
    for value in (b'{"n": 1}', b"nonsense", b'{"n": 2}'):
        producer.produce(topic, value, partition=0)
    producer.flush(PATIENCE_S)
    out = tmp_path / "out.jsonl"
    report = run_until(reading(servers, topic, out), lambda: len(lines(out)) == 2)
    assert [row["n"] for row in lines(out)] == [1, 2]
    assert "partition 0 offset 1" in report.examples[0]["error"]


def test_a_cluster_that_is_not_there_is_told(tmp_path):
    topic = io.Kafka("127.0.0.1:9", "t", {"n": int}, patience="300 ms")
    with pytest.raises(InputError, match=r"kafka://127.0.0.1:9/t.*is a broker running"):
        topic.open(pytest.fail)


def test_while_the_cluster_is_away_records_wait_on_disk(tmp_path):
    flow = Flow("away")
    source = io.Items([{"n": n} for n in range(50)], {"n": int})
    flow.read("in", source).write("out", io.Kafka("127.0.0.1:9", "t", patience="300 ms"))
    report = engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert report.dead_letters == 0
    assert report.extra["sinks"]["out"]["waiting"] == 50


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_backlog_in_several_partitions_makes_nothing_late(servers, tmp_path, lanes):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    flow = counted(backlog_of(servers, f"backlog{lanes}", rows), out)
    # the last window is open when the run stops, which it closes
    run_until(flow, lambda: closed(rows).items() <= windows_in(out).items(), lanes=lanes)
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == plainly(rows)


def test_runs_that_are_killed_amid_a_backlog_have_the_windows_of_one_that_was_not(servers, tmp_path):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    flow = counted(backlog_of(servers, "backlog-killed", rows), out)
    killed_until(
        lambda: closed(rows).items() <= windows_in(out).items(),
        lambda: engine.run(flow, checkpoint=tmp_path / "checkpoint", every="20 ms"),
        kills=4,
        longest_s=0.6,
    )
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == closed(rows)


def test_partitions_that_are_empty_or_silent_do_not_stop_the_windows(servers, tmp_path):
    full, short = hour_in(2, 4_000)
    rows, out = [full, [], short[:10], []], tmp_path / "out.jsonl"
    flow = counted(backlog_of(servers, "silent", rows), out)
    run = engine.start(flow)
    wait_until(lambda: windows_in(out) == closed(rows), "all windows but the last", seconds=PATIENCE_S)
    more = [{**row, "at": row["at"] + timedelta(hours=1), "split": 1} for row in full]
    fill_splits(servers, "silent", [[], more])
    wait_until(lambda: len(windows_in(out)) >= 60 + 1 + 59, "those of another partition", seconds=PATIENCE_S)
    run.stop()
    run.wait(PATIENCE_S)
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == plainly([full, more, short[:10]])


def test_a_backlog_of_transactions_is_read_to_its_end(servers, tmp_path):
    rows, out = hour_in(4, 2_000), tmp_path / "out.jsonl"
    source = backlog_of(servers, "in-parts", [[], [], [], []])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "in-parts"})
    producer.init_transactions(PATIENCE_S)
    for first in range(0, 500, 100):
        producer.begin_transaction()
        for partition, those in enumerate(rows):
            for row in those[first : first + 100]:
                producer.produce("in-parts", value_of(row), partition=partition)
        producer.commit_transaction(PATIENCE_S)
    run_until(counted(source, out), lambda: closed(rows).items() <= windows_in(out).items())
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == plainly(rows)
