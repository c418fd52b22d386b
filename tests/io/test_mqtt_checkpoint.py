"""MQTT under the engine's checkpoints, against a real mosquitto: what the broker is told, and what is there after a kill."""

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter

import pytest
from mosquitto import PROGRAM, heard

from headwater import Flow, col, engine, io
from headwater.io.mqtt.reader import MqttReader
from killed import killed_until, running
from waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")


def numbered(state, record):
    state = (state or 0) + 1
    return state, {"n": record["n"], "place": state}


def numbers(broker, qos):
    return io.Mqtt(broker.url, "numbers", {"n": int}, qos=qos, client_id="counting", retry="50 ms")


def counting(broker, out, qos):
    flow = Flow("counting")
    keyed = flow.read("in", numbers(broker, qos)).select("one", "n", k=col.n * 0).key_by("k")
    keyed.process("count", numbered, out={"n": int, "place": int}).write("out", io.JsonLines(out))
    return flow


def written(out):
    lines = out.read_text().splitlines() if out.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def stop_when(run, done):
    """Stop a run once something is true, or long after it should have been; what is to come twice may come for a moment."""
    end = time.monotonic() + PATIENCE_S
    while not done() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.2)
    run.stop()
    run.wait(PATIENCE_S)


def subscribe(broker, qos):
    """Have the broker keep what comes from now on."""
    reader = numbers(broker, qos).open(pytest.fail)
    assert reader.subscribed.wait(PATIENCE_S)
    reader.close()


def test_a_broker_need_not_wait_for_checkpoints(broker, tmp_path):
    out = tmp_path / "out.jsonl"
    subscribe(broker, 1)
    broker.published("numbers", *[f'{{"n": {n}}}' for n in range(500)])  # mosquitto has 20 on their way at most
    run = engine.start(counting(broker, out, 1), checkpoint=tmp_path / "checkpoint", every="1 hour")
    stop_when(run, lambda: run.sample().records_in == 500)
    assert [row["n"] for row in written(out)] == list(range(500))


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_when_a_flow_is_killed(broker, tmp_path, qos):
    out, checkpoint, count = tmp_path / "out.jsonl", tmp_path / "checkpoint", 3000
    subscribe(broker, qos)
    publishing = threading.Thread(
        target=lambda: [
            broker.published("numbers", *[f'{{"n": {n}}}' for n in range(start, start + 300)], qos=qos)
            for start in range(0, count, 300)
        ]
    )
    publishing.start()
    killed_until(
        lambda: len({row["n"] for row in written(out)}) == count,
        lambda: engine.run(counting(broker, out, qos), checkpoint=checkpoint, every="20 ms"),
        kills=6,
    )
    publishing.join(PATIENCE_S)
    # what was not in a checkpoint comes again
    run = engine.start(counting(broker, out, qos), checkpoint=checkpoint)
    stop_when(run, lambda: len({row["n"] for row in written(out)}) == count)
    rows = written(out)
    assert {row["n"] for row in rows} == set(range(count))
    assert [row["place"] for row in rows] == list(range(1, len(rows) + 1))  # the state counts what the file holds
    twice = {n: many for n, many in Counter(row["n"] for row in rows).items() if many > 1}
    if qos == 2:
        assert not twice


def test_records_for_a_broker_that_is_away_wait_on_disk_and_none_is_a_dead_letter(broker, tmp_path):
    flow = Flow("publishing")
    records = io.Items([{"n": n} for n in range(500)], {"n": int})
    flow.read("in", records).write("out", io.Mqtt(broker.url, "gone", qos=1, patience="100 ms", buffer=10))
    broker.stop()
    report = engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert report.dead_letters == 0
    assert report.extra["sinks"]["out"]["waiting"] == 500
    broker.start()
    listener = broker.listening("gone", 500)
    report = engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert report.extra["sinks"]["out"]["waiting"] == 0
    assert {json.loads(text)["n"] for _, text in heard(listener)} == set(range(500))


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_broker_sends_again_since_it_was_not_told_is_there_once_with_qos_2(broker, tmp_path, qos):
    out, checkpoint = tmp_path / "out.jsonl", tmp_path / "checkpoint"
    subscribe(broker, qos)
    broker.published("numbers", *[f'{{"n": {n}}}' for n in range(100)], qos=qos)

    def killed_before_it_acknowledges():
        acknowledge = MqttReader.commit

        def commit(reader, position):
            if position:
                os.kill(os.getpid(), signal.SIGKILL)
            acknowledge(reader, position)

        MqttReader.commit = commit
        engine.run(counting(broker, out, qos), checkpoint=checkpoint)

    if (child := os.fork()) == 0:
        killed_before_it_acknowledges()
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    run = engine.start(counting(broker, out, qos), checkpoint=checkpoint)
    stop_when(run, lambda: len({row["n"] for row in written(out)}) == 100)
    came = sorted(row["n"] for row in written(out))
    assert sorted(set(came)) == list(range(100))
    assert (came == list(range(100))) == (qos == 2)


@pytest.mark.parametrize("every", ["1 hour", "20 ms"])
def test_what_was_acknowledged_is_there_though_somebody_deletes_the_checkpoint(broker, tmp_path, every):
    out, checkpoint = tmp_path / "out.jsonl", tmp_path / "checkpoint"
    subscribe(broker, 1)

    def wait_until(done):
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end
            time.sleep(0.02)

    def published(start, stop):
        broker.published("numbers", *[f'{{"n": {n}}}' for n in range(start, stop)])
        wait_until(lambda: {row["n"] for row in written(out)} == set(range(stop)))

    def number():
        return max((int(path.stem) for path in checkpoint.glob("*.checkpoint")), default=-1)

    with running(lambda: engine.run(counting(broker, out, 1), checkpoint=checkpoint, every=every)):
        published(0, 100)
        if every != "1 hour":
            wait_until(lambda: number() >= 0)
        shutil.rmtree(checkpoint.rename(tmp_path / "away"))
        published(100, 200)  # the flow has what is safe in the log alone, and the broker is told then
        if every != "1 hour":
            last = number()
            wait_until(lambda: number() > last + 1)
    run = engine.start(counting(broker, out, 1), checkpoint=checkpoint)
    stop_when(run, lambda: {row["n"] for row in written(out)} == set(range(200)))
    rows = written(out)
    assert {row["n"] for row in rows} == set(range(200))
    assert [row["place"] for row in rows] == list(range(1, len(rows) + 1))
