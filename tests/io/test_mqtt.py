import gc
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
from broker import Broker, Link, ScriptedBroker

from headwater import Flow, engine
from headwater.data.batch import CREATED, EMITTED, Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io import Collect, Items, Mqtt
from waiting import PATIENCE_S, wait_until

SCHEMA = Schema.of({"id": str, "n": int})
QUICK = {"retry": "50 ms", "username": "tester"}
numbers = count()


@pytest.fixture(scope="module")
def broker():
    broker = Broker().start()
    yield broker
    broker.stop()


@pytest.fixture
def topic():
    return f"test/{next(numbers)}"


@pytest.fixture
def link(broker):
    link = Link(broker.port).mend()
    yield link
    link.cut()


def subscribed(opened, broker, topic, reject=pytest.fail, **options):
    reader = opened(Mqtt(broker.url, topic, options.pop("schema", SCHEMA), **QUICK, **options), reject)
    assert reader.subscribed.wait(PATIENCE_S)
    return reader


def publisher(opened, broker, topic, schema=SCHEMA, **options):
    return opened(Mqtt(broker.url, topic, **QUICK, **options), schema)


def numbered(*numbers):
    return Batch.of({"id": ["s"] * len(numbers), "n": list(numbers)}, SCHEMA)


def delivered(writer):
    wait_until(lambda: writer.waiting == 0)


def taken(reader, number, limit=50):
    """Read until there are `number` records; fail long after they should have come."""
    rows, end = [], time.monotonic() + PATIENCE_S
    while len(rows) < number:
        assert time.monotonic() < end, f"only {len(rows)} of {number} records came"
        rows += reader.read(limit, 0.5).rows()
    return rows


both = pytest.mark.parametrize("qos", [0, 1, 2])


@both
def test_records_come_back_in_order(opened, broker, topic, qos):
    reader = subscribed(opened, broker, topic, qos=qos)
    writer = publisher(opened, broker, topic, qos=qos)
    for start in range(0, 500, 50):
        writer.write(numbered(*range(start, start + 50)))
    assert taken(reader, 500) == numbered(*range(500)).rows()
    assert len(reader.read(50, 0)) == 0


def test_what_is_no_record_is_rejected_with_its_topic(opened, broker, topic, rejected):
    reader = subscribed(opened, broker, topic, rejected)
    raw = Schema.of({"text": str})
    writer = publisher(opened, broker, topic, raw, payload="text")
    payloads = ['{"id": "a", "n": 1}', "{", "", '{"n": "x"}', '{"id": "b"}']
    writer.write(Batch.of({"text": payloads}, raw))
    rows = []
    wait_until(lambda: rows.extend(reader.read(50, 0.1).rows()) or len(rows) + len(rejected) == len(payloads))
    assert rows == [{"id": "a", "n": 1}, {"id": "b", "n": None}]
    assert [text for text, _ in rejected] == ["{", "", '{"n": "x"}']
    assert all(reason.startswith(f"{topic}: ") for _, reason in rejected)


def test_a_topic_is_made_of_columns_and_can_be_a_column(opened, broker, topic):
    reader = subscribed(opened, broker, f"{topic}/+/out", topic_column="topic")
    writer = publisher(opened, broker, f"{topic}/{{id}}/out")
    writer.write(Batch.of({"id": ["a", "b"], "n": [1, 2]}, SCHEMA))
    assert [row["topic"] for row in taken(reader, 2)] == [f"{topic}/a/out", f"{topic}/b/out"]


def test_texts_go_as_they_are(opened, broker, topic):
    reader = subscribed(opened, broker, topic, schema=None, payload="text")
    schema = Schema.of({"n": int, "line": str})
    writer = publisher(opened, broker, topic, schema, payload="text")
    writer.write(Batch.of({"n": [1, 2], "line": ["é, {", None]}, schema))
    assert taken(reader, 2) == [{"text": "é, {"}, {"text": ""}]


def test_who_comes_later_gets_the_last_retained_message_of_each_topic(opened, broker, topic):
    writer = publisher(opened, broker, f"{topic}/{{id}}", qos=1, retain=True)
    writer.write(Batch.of({"id": ["a", "a", "b"], "n": [1, 2, 3]}, SCHEMA))
    delivered(writer)
    first = subscribed(opened, broker, f"{topic}/+")
    assert sorted(row["n"] for row in taken(first, 2)) == [2, 3]
    other = subscribed(opened, broker, f"{topic}/b")
    assert {row["n"] for row in [*taken(other, 1), *other.read(50, 0.1).rows()]} == {3}  # amqtt sends it twice


def test_a_record_was_created_when_it_arrived_or_when_it_says(opened, broker, topic):
    schema = Schema.of({"t": "time"})
    reader = subscribed(opened, broker, topic, schema=schema, created="t")
    before = time.time_ns()
    publisher(opened, broker, topic, schema).write(Batch.of({"t": [5, None]}, schema))
    stamps = []
    wait_until(lambda: stamps.extend(reader.read(50, 0.1).stamps.tolist()) or len(stamps) == 2)
    assert stamps[0][CREATED] == 5000
    assert before <= stamps[1][CREATED] <= stamps[1][EMITTED]


@both
def test_a_source_waits_for_a_broker_that_is_down_at_start(opened, topic, qos, caplog):
    broker = Broker()
    reader = opened(Mqtt(broker.url, topic, SCHEMA, qos=qos, **QUICK), pytest.fail)
    wait_until(lambda: "cannot reach" in caplog.text)
    for _ in range(3):  # it tries again, and says no more
        assert len(reader.read(50, 0.1)) == 0
    assert [record.message for record in caplog.records if "cannot reach" in record.message] == [
        f"cannot reach broker {broker.url}: [Errno 111] Connection refused; trying again"
    ]
    broker.start()
    assert reader.subscribed.wait(PATIENCE_S)
    publisher(opened, broker, topic, qos=qos).write(numbered(1))
    assert taken(reader, 1) == numbered(1).rows()
    broker.stop()


@both
def test_a_sink_keeps_records_for_a_broker_that_is_down_at_start(opened, broker, topic, link, qos):
    link.cut()
    reader = subscribed(opened, broker, topic, qos=qos)
    writer = publisher(opened, link, topic, qos=qos)
    writer.write(numbered(*range(100)))
    assert writer.waiting == 100
    link.mend()
    assert taken(reader, 100) == numbered(*range(100)).rows()


@both
def test_a_sink_keeps_records_while_the_broker_is_gone_in_the_middle(opened, broker, topic, link, qos):
    reader = subscribed(opened, broker, topic, qos=qos)
    writer = publisher(opened, link, topic, qos=qos)
    writer.write(numbered(*range(10)))
    assert len(taken(reader, 10)) == 10
    delivered(writer)
    link.cut()
    wait_until(lambda: not writer._connection.connected.is_set())
    writer.write(numbered(*range(10, 200)))
    link.mend()
    assert taken(reader, 190) == numbered(*range(10, 200)).rows()


def test_what_is_published_while_the_source_is_cut_off_comes_later_with_qos_1(opened, broker, topic, link):
    reader = subscribed(opened, link, topic, qos=1)
    writer = publisher(opened, broker, topic, qos=1)
    writer.write(numbered(1))
    assert taken(reader, 1) == numbered(1).rows()
    reader.read(1, 0)  # comes back for more, which acknowledges the first
    link.cut()
    wait_until(lambda: not reader._connection.connected.is_set())
    writer.write(numbered(*range(2, 50)))
    delivered(writer)
    link.mend()
    assert taken(reader, 48) == numbered(*range(2, 50)).rows()


@pytest.fixture
def scripted():
    broker = ScriptedBroker()
    yield broker
    broker.stop()


def test_a_message_is_acknowledged_only_when_the_flow_comes_back(opened, scripted, topic):
    reader = subscribed(opened, scripted, topic, qos=1)
    for mid in (1, 2, 3):
        scripted.publish(topic, b'{"n": %d}' % mid, mid)
    wait_until(lambda: reader.waiting == 3)
    assert [row["n"] for row in taken(reader, 2, limit=2)] == [1, 2]
    assert scripted.acknowledged == []
    assert [row["n"] for row in taken(reader, 1)] == [3]
    wait_until(lambda: scripted.acknowledged == [1, 2])
    reader.close()
    wait_until(lambda: scripted.acknowledged == [1, 2, 3])


def with_one_of_two_taken(opened, scripted, topic):
    reader = subscribed(opened, scripted, topic, qos=1)
    for mid in (1, 2):
        scripted.publish(topic, b'{"n": %d}' % mid, mid)
    wait_until(lambda: reader.waiting == 2)
    assert [row["n"] for row in taken(reader, 1, limit=1)] == [1]
    return reader


def test_what_a_closed_reader_still_held_stays_with_the_broker(opened, scripted, topic):
    reader = with_one_of_two_taken(opened, scripted, topic)
    reader.close()
    wait_until(lambda: scripted.acknowledged == [1])


def test_what_is_sent_again_after_a_cut_is_read_once(opened, scripted, topic):
    reader = with_one_of_two_taken(opened, scripted, topic)
    scripted.stop()
    wait_until(lambda: not reader._connection.connected.is_set())
    assert len(reader.read(0, 0)) == 0  # comes back, but there is nobody to tell that 1 is done
    scripted.session_kept = True
    scripted.start()
    wait_until(reader._connection.connected.is_set)
    for mid in (1, 2):
        scripted.publish(topic, b'{"n": %d}' % mid, mid, again=True)
    scripted.publish(topic, b'{"n": 3}', 3)
    assert [row["n"] for row in taken(reader, 2)] == [2, 3]
    reader.read(1, 0)
    wait_until(lambda: {*scripted.acknowledged} == {1, 2, 3})
    assert scripted.subscriptions == 1


def test_a_broker_that_lost_the_session_is_asked_again_and_not_answered_for_the_old(opened, scripted, topic):
    reader = subscribed(opened, scripted, topic, qos=1)
    scripted.publish(topic, b'{"n": 1}', 7)
    wait_until(lambda: reader.waiting == 1)
    scripted.stop()
    scripted.start()
    wait_until(lambda: scripted.subscriptions == 2)
    assert [row["n"] for row in taken(reader, 1)] == [1]
    scripted.publish(topic, b'{"n": 2}', 8)
    assert [row["n"] for row in taken(reader, 1)] == [2]
    reader.read(1, 0)
    wait_until(lambda: scripted.acknowledged == [8])


@both
def test_flows_go_on_when_the_broker_is_restarted(opened, topic, qos):
    broker = Broker().start()
    reader = subscribed(opened, broker, topic, qos=qos)
    writer = publisher(opened, broker, topic, qos=qos)
    writer.write(numbered(1))
    assert taken(reader, 1) == numbered(1).rows()
    delivered(writer)
    reader.read(1, 0)
    broker.stop()
    wait_until(lambda: not reader._connection.connected.is_set())
    reader.subscribed.clear()
    broker.start()
    assert reader.subscribed.wait(PATIENCE_S)
    writer.write(numbered(2, 3))
    assert taken(reader, 2) == numbered(2, 3).rows()
    broker.stop()


def test_every_message_that_a_flow_had_no_room_for_is_in_its_report(opened, broker, topic):
    """At QoS 0, through a whole run: what is published is written, or counted as shed by the source."""
    written, source = Gated(), Mqtt(broker.url, topic, SCHEMA, buffer=10, **QUICK)
    flow = Flow("flood")
    flow.read("in", source).write("out", written)
    run = engine.start(flow, queue_records=10)
    reader: Any = run.sources[0]._reader
    assert reader.subscribed.wait(PATIENCE_S)
    writer = publisher(opened, broker, topic)
    writer.write(numbered(*range(1000)))
    wait_until(lambda: reader.dropped > 100 and writer.waiting == 0)
    written.opened.set()
    wait_until(lambda: written.count + reader.dropped == 1000)
    run.stop()
    document = run.wait().to_json()
    assert document["records_in"] == 1000
    assert document["shed_by"] == {"buffer of 'in' full": 1000 - written.count}
    assert document["shed"] == document["steps"][0]["shed"] > 100


class Gated:
    """A sink that takes nothing until it is opened."""

    def __init__(self):
        self.opened, self.count = Event(), 0

    def open(self, schema):
        return self

    def write(self, batch):
        assert self.opened.wait(PATIENCE_S)
        self.count += len(batch)

    def close(self):
        pass


def test_a_full_buffer_drops_and_counts_with_qos_0(opened, broker, topic, caplog):
    reader = subscribed(opened, broker, topic, buffer=10)
    writer = publisher(opened, broker, topic)
    writer.write(numbered(*range(100)))
    wait_until(lambda: reader.dropped == 90)
    assert taken(reader, 10) == numbered(*range(10)).rows()
    assert "messages dropped so far" in caplog.text


def test_a_full_buffer_stops_reading_and_loses_nothing_with_qos_1(opened, broker, topic):
    reader = subscribed(opened, broker, topic, qos=1, buffer=10)
    writer = publisher(opened, broker, topic, qos=1)
    writer.write(numbered(*range(100)))
    delivered(writer)
    wait_until(lambda: reader.waiting == 10)
    assert taken(reader, 100, limit=7) == numbered(*range(100)).rows()
    assert reader.dropped == 0


def test_a_sink_whose_buffer_is_full_says_so_and_what_was_left(topic):
    sink = Mqtt(Broker().url, topic, buffer=100, patience="10 ms", **QUICK)
    writer = sink.open(SCHEMA)
    writer.write(numbered(*range(100)))
    with pytest.raises(InputError, match=r"cannot publish to .*: 100 records wait for the broker already"):
        writer.write(numbered(1))
    assert writer.waiting == 100
    with pytest.raises(InputError, match=r"100 records were not delivered to mqtt://"):
        writer.close()


#: values of a topic's column that no broker takes, and what is said of them
UNFIT = {
    "$SYS/x": "'$SYS/x' begins with '$'",
    "$": "begins with '$'",
    "+": "a wildcard",
    "a#": "a wildcard",
    "a\0b": "a character that brokers do not take",
    "a\nb": "a character that brokers do not take",
    "x" * 70_000: "has 70,000 bytes",
    "é" * 32_768: "has 65,536 bytes",
    None: "has no 'id'",
    "": "empty topic",
}


@both
def test_only_the_records_whose_topic_no_broker_takes_are_dead_letters(opened, broker, topic, qos):
    """The whole flow, with the topic of one column and good records between the bad."""
    reader = subscribed(opened, broker, f"{topic}/#", qos=qos)
    good = [f"{topic}/{n}" for n in range(len(UNFIT))]
    rows = [{"id": value, "n": n} for n, pair in enumerate(zip(UNFIT, good, strict=True)) for value in pair]
    flow, letters = Flow("topics"), Collect()
    flow.read("in", Items(rows, SCHEMA)).write("out", Mqtt(broker.url, "{id:path}", qos=qos, **QUICK))
    flow.dead_letters.write("letters", letters)
    report = engine.run(flow)
    assert sorted(row["id"] for row in taken(reader, len(good))) == sorted(good)
    assert report.last.records_out["out"] == len(good)
    assert report.dead_letters == len(UNFIT)
    for letter, said in zip(letters.records, UNFIT.values(), strict=True):
        assert said in letter["error"]
        assert len(letter["error"]) < 200


def test_a_slash_in_a_value_makes_no_levels_unless_it_may(opened, broker, topic):
    reader = subscribed(opened, broker, f"{topic}/#", topic_column="topic")
    values = Batch.of({"id": ["a/b", "c"], "n": [1, 2]}, SCHEMA)
    refused = publisher(opened, broker, f"{topic}/{{id}}/x").write(values)
    assert list(refused) == [0]
    assert "write {id:path}" in refused[0]
    assert taken(reader, 1)[0]["topic"] == f"{topic}/c/x"
    assert not publisher(opened, broker, f"{topic}/{{id:path}}/x").write(values)
    assert [row["topic"] for row in taken(reader, 2)] == [f"{topic}/a/b/x", f"{topic}/c/x"]


def test_a_dollar_that_the_topic_itself_begins_with_is_meant(opened, broker):
    writer = publisher(opened, broker, "$aws/things/{id}/update")
    assert not writer.write(numbered(1))


def test_a_message_that_is_no_message_is_refused_alone(opened, broker, topic):
    schema = Schema.of({"v": object})
    reader = subscribed(opened, broker, topic, schema=schema)
    writer = publisher(opened, broker, topic, schema)
    wait_until(writer._connection.connected.is_set)
    writer._connection.largest = 1000
    refused = writer.write(Batch.of({"v": [1, object(), "x" * 2000, 2]}, schema))
    assert {row: reason.split(":")[0] for row, reason in refused.items()} == {
        1: "a record cannot be written as JSON",
        2: f"a message of {2013 + len(topic):,} bytes; the broker takes 1,000 at most",
    }
    assert [row["v"] for row in taken(reader, 2)] == [1, 2]


def test_a_sender_that_breaks_says_so_and_nothing_hangs(opened, broker, topic, monkeypatch):
    writer = publisher(opened, broker, topic)
    wait_until(writer._connection.connected.is_set)

    def broken(*args, **options):
        raise ValueError("no such thing")

    monkeypatch.setattr(writer._outbox, "next_piece", broken)
    writer.write(numbered(1, 2))
    wait_until(lambda: writer._connection.broken)
    for act in (writer.flush, lambda: writer.write(numbered(3))):
        with pytest.raises(InputError, match="sending broke: no such thing"):
            act()
    with pytest.raises(InputError, match=r"2 records were not delivered .* sending broke") as told:
        writer.close()
    assert told.value.records == 2


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    from pwdlib import PasswordHash
    from pwdlib.hashers.argon2 import Argon2Hasher

    hashed = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),)).hash("s3cret")
    passwords = tmp_path_factory.mktemp("broker") / "passwords"
    passwords.write_text(f"sensor:{hashed}\n")
    broker = Broker(passwords=passwords).start()
    yield broker
    broker.stop()


def test_user_and_password_let_in_from_arguments_url_and_environment(opened, guarded, topic, monkeypatch):
    reader = opened(Mqtt(guarded.url, topic, SCHEMA, username="sensor", password="s3cret"), pytest.fail)
    assert reader.subscribed.wait(PATIENCE_S)
    url = guarded.url.replace("://", "://sensor:s3cret@")
    opened(Mqtt(f"{url}/{topic}"), SCHEMA).write(numbered(1))
    monkeypatch.setenv("HEADWATER_MQTT_USERNAME", "sensor")
    monkeypatch.setenv("HEADWATER_MQTT_PASSWORD", "s3cret")
    opened(Mqtt(guarded.url, topic), SCHEMA).write(numbered(2))
    assert sorted(row["n"] for row in taken(reader, 2)) == [1, 2]


def test_a_wrong_password_is_one_clear_error(opened, guarded, topic):
    wrong = {**QUICK, "username": "sensor", "password": "guess"}
    reader = opened(Mqtt(guarded.url, topic, SCHEMA, **wrong), pytest.fail)
    writer = opened(Mqtt(guarded.url, topic, **wrong), SCHEMA)
    for connection in (reader._connection, writer._connection):
        wait_until(lambda connection=connection: connection.refused)
    with pytest.raises(InputError, match=r"refuses the connection: .*are user and password right"):
        reader.read(50, 0)
    with pytest.raises(InputError, match=r"refuses the connection: .*are user and password right"):
        writer.write(numbered(1))


class Certificate(NamedTuple):
    pem: Path
    key: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    files = Certificate(folder / "cert.pem", folder / "key.pem")
    made = subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {files.key} "
        f"-out {files.pem} -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1".split(),
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr
    return files


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # both ends leave sockets to the GC
def test_tls_carries_records_and_a_stranger_is_not_trusted(opened, certificate, topic):
    broker = Broker(certificate=certificate).start()
    reader = subscribed(opened, broker, topic, ca=certificate.pem)
    publisher(opened, broker, topic, ca=certificate.pem).write(numbered(1))
    assert taken(reader, 1) == numbered(1).rows()
    stranger = opened(Mqtt(broker.url, topic, SCHEMA, **QUICK), pytest.fail)
    wait_until(lambda: stranger._connection.refused)
    with pytest.raises(InputError, match="its certificate is not trusted"):
        stranger.read(50, 0)
    broker.stop()
    gc.collect()


def test_a_certificate_that_is_missing_is_named(topic):
    with pytest.raises(InputError, match=r"cannot use TLS files no\.pem"):
        Mqtt("mqtts://localhost", topic, SCHEMA, ca="no.pem").open(pytest.fail)


IN_LANES = """
import sys
from headwater import Flow, engine
from headwater.io import Items, Mqtt

flow = Flow("lanes")
rows = flow.read("r", Items([{"id": f"s{n % 7}", "n": n} for n in range(2000)])).map("m", lambda row: row)
rows.key_by("id").process("p", lambda seen, row: (seen, row)).write("w", Mqtt(sys.argv[1], sys.argv[2], username="tester"))
report = engine.run(flow, lanes=2, chunk=100)
print(report.last.steps["w"].instances, report.last.records_out["w"], report.dead_letters)
"""


def test_every_lane_publishes_the_records_of_its_keys_in_order(opened, broker, topic):
    reader = subscribed(opened, broker, topic)
    ran = subprocess.run(
        [sys.executable, "-c", IN_LANES, broker.url, topic], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ran.stdout.split() == ["2", "2000", "0"], ran.stderr
    rows = taken(reader, 2000)
    assert sorted(row["n"] for row in rows) == list(range(2000))
    for sensor in range(7):
        of_one = [row["n"] for row in rows if row["id"] == f"s{sensor}"]
        assert of_one == sorted(of_one)
