"""Kafka with a broker of its own on loopback: what is written is read back, by Kafka's own means and by a flow.

Broker and connector are jars that Maven brings (kafka/pom.xml); without them the test is skipped.
"""

import json
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from kafka_flows import JAVA_ONLY, KEYS, MOST, RECORDS

from headwater import Flow, engine, io
from headwater import spark as on_spark
from headwater.errors import FlowError, RunError
from headwater.spark.sinks import guarantee, key_before
from headwater.spark.sources.kafka import PACKAGES
from headwater_bench.servers.kafka import JARS, broker
from split_source import hour_in, lines, plainly, windows_in
from waiting import wait_until

CONNECTOR = [JARS / "{1}-{2}.jar".format(*package.split(":")) for package in PACKAGES]


@pytest.mark.skipif(not all(jar.exists() for jar in CONNECTOR), reason=f"no jars of Kafka in {JARS}")
def test_records_go_through_kafka_with_their_keys_in_order_and_a_reader_takes_what_is_there(tmp_path):
    with broker(tmp_path) as servers:
        script = Path(__file__).with_name("kafka_flows.py")
        command = [sys.executable, script, servers, ",".join(map(str, CONNECTOR)), tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "may be in kafka://" in done.stderr  # of the topic that is written without transactions
    assert 'property: "max.request.size"' in done.stderr
    told = json.loads(done.stdout.splitlines()[-1])

    by_key = defaultdict(list)
    for partition, key, record in told["keyed"]:
        assert key == record["tank"]
        assert "about" not in record
        by_key[key].append((partition, record["place"], record["n"]))
    assert len(by_key) == KEYS
    for number, key in enumerate(sorted(by_key)):
        assert len({partition for partition, _, _ in by_key[key]}) == 1
        assert [place for _, place, _ in by_key[key]] == list(range(1, RECORDS // KEYS + 1))
        assert [n for _, _, n in by_key[key]] == list(range(number, RECORDS, KEYS))
    assert sorted(int(key) for _, key, _ in told["by number"]) == list(range(RECORDS))

    report = told["report"]
    assert report["records_in"] == RECORDS
    assert report["spark"]["batches"] >= RECORDS // MOST
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(line["n"] for line in lines) == list(range(RECORDS))
    assert all(line["key"] == line["tank"] and line["about"] == {"unit": f"u{line['n'] % 2}"} for line in lines)
    for key in by_key:
        places = [line["place"] for line in lines if line["tank"] == key]
        assert places == sorted(places)
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    for topic in ("keyed", "by-number"):
        assert sorted(line["n"] for line in lines if line["topic"] == topic) == list(range(RECORDS))
    assert len(lines) == 2 * RECORDS


@pytest.mark.thorough  # test_splits.py shows it of sources whose splits are no partitions of Kafka's
@pytest.mark.skipif(not all(jar.exists() for jar in CONNECTOR), reason=f"no jars of Kafka in {JARS}")
def test_a_backlog_in_several_partitions_makes_nothing_late_though_the_driver_is_killed(tmp_path):
    pytest.importorskip("confluent_kafka")
    from kafka_backlog import backlog_of

    rows, out = hour_in(), tmp_path / "out.jsonl"
    script = Path(__file__).with_name("kafka_backlog_flow.py")
    with broker(tmp_path) as servers:
        backlog_of(servers, "backlog", rows)
        command = [sys.executable, script, servers, ",".join(map(str, CONNECTOR)), tmp_path]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
            wait_until(lambda: first.poll() is not None or windows_in(out), "the first windows")
            assert first.poll() is None
            first.kill()
        begun = len(windows_in(out))
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert begun < len(plainly(rows))
    assert windows_in(out) == plainly(rows)
    assert lines(tmp_path / "late.jsonl") == []
    assert json.loads(done.stdout.splitlines()[-1])["spark"]["batches"] > 1


@pytest.mark.skipif(not all(jar.exists() for jar in CONNECTOR), reason=f"no jars of Kafka in {JARS}")
def test_micro_batches_of_a_topic_read_more_or_less_with_how_long_they_take(tmp_path):
    pytest.importorskip("confluent_kafka")
    from kafka_backlog import filled

    script = Path(__file__).with_name("kafka_pace_flow.py")
    with broker(tmp_path) as servers:
        filled(servers, "backlog", [[{"n": n} for n in range(part, 4000, 2)] for part in range(2)])
        command = [sys.executable, script, servers, ",".join(map(str, CONNECTOR)), tmp_path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["long"] == [
        100,
        100,
        200,
        400,
        800,
        1600,
        800,
    ]  # a sixteenth first, and twice as much while it is quick
    assert told["short"][:3] == [1000, 1000, 250]  # a quarter, where it takes too long
    assert set(told["short"][3:]) == {250}  # less than a 64th would take no less time
    assert told["frame"][:4] == [1600, 1600, 400, 100]  # one that has a limit of its own begins with that
    for name in told:
        lines = [json.loads(line)["n"] for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert sorted(lines) == list(range(4000)), name


def test_what_holds_for_a_topic_depends_on_the_client_that_is_there(monkeypatch):
    flow = Flow("sinks")
    read = flow.read("r", io.Items([{"n": 1}]))
    read.write("plain", io.Kafka("h:1", "t"))
    read.write("java's", io.Kafka("h:1", "t", options=JAVA_ONLY))
    pytest.importorskip("confluent_kafka")
    assert [guarantee(flow.steps[name]) for name in ("plain", "java's")] == ["exactly once", "at least once"]
    monkeypatch.setattr("headwater.spark.sinks.kafka.find_spec", lambda name: None)
    assert guarantee(flow.steps["plain"]) == "at least once"


def doubled(state, record):
    return None, record


def test_the_key_of_a_topic_is_that_of_the_last_key_by():
    sink = io.Kafka("h:1", "t")
    flow = Flow("keys")
    read = flow.read("r", io.Items([{"n": 1, "tank": "a", "pump": "b"}]))
    keyed = read.key_by("tank").process("p", doubled, out={"n": int, "tank": str, "pump": str})
    for name, stream, key in [
        ("plain", read, ()),
        ("kept", keyed, ("tank",)),
        ("two", keyed.key_by("tank", "pump").process("q", doubled, out={"tank": str, "pump": str}), ("tank", "pump")),
        ("lost", keyed.select("s", "n"), ()),
    ]:
        stream.write(name, sink)
        assert key_before(flow, flow.steps[name]) == key, name


def test_a_key_that_records_do_not_have_is_told_before_spark_starts(monkeypatch):
    monkeypatch.setattr("headwater.spark.running.session", lambda *given: pytest.fail("Spark was started"))
    flow = Flow("keys")
    flow.read("r", io.Items([{"n": 1}])).write("out", io.Kafka("h:1", "t", key="tank"))
    with pytest.raises(FlowError, match=r"the key of kafka://h:1/t.*'tank'"):
        on_spark.run(flow)
    flow = Flow("keys")
    flow.read("r", io.Kafka("h:1", "t", {"n": int}, key="n")).write("out", io.Discard())
    with pytest.raises(FlowError, match="is for writing"):
        on_spark.run(flow)


def test_a_pattern_of_topics_is_for_reading_on_spark():
    pattern = io.Kafka("h:1", "levels-.*", {"n": int}, pattern=True, topic_column="from")
    assert tuple(pattern.schema) == ("n", "from")
    flow = Flow("reading")
    flow.read("r", pattern).write("out", io.Discard())
    with pytest.raises(FlowError, match="a pattern of topics, which are read on Spark only"):
        engine.run(flow)
    flow = Flow("writing")
    flow.read("r", io.Items([{"n": 1}])).write("out", io.Kafka("h:1", "levels-.*", pattern=True))
    with pytest.raises(FlowError, match="to write, name one"):
        on_spark.run(flow)
    with pytest.raises(FlowError, match="no regular expression"):
        io.Kafka("h:1", "levels-(", pattern=True)


def test_a_broker_that_is_not_there_is_told_before_spark_starts(monkeypatch):
    monkeypatch.setattr("headwater.spark.running.session", lambda *given: pytest.fail("Spark was started"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{free.getsockname()[1]}"
        flow = Flow("nobody")
        flow.read("r", io.Kafka(server, "t", {"n": int})).write("out", io.Discard())
        with pytest.raises(RunError, match=rf"no broker of kafka://{server}/t answers \({server}: .*is it running"):
            on_spark.run(flow)
