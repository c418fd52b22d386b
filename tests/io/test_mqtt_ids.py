"""Ids of published messages, as a real mosquitto and its own client have them: the same whenever a message is sent."""

import json
import os
import signal
from collections import Counter

import pytest
from mosquitto import PROGRAM

from headwater import Flow, engine, io
from headwater.errors import FlowError
from headwater.flow.guarantees import guarantees
from headwater.io.transactions.outbox import Outbox
from headwater_bench.servers import mosquitto as witness
from killed import kills_itself

with_a_broker = pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")


def publishing(sink, count=100, start=0):
    flow = Flow("publishing")
    flow.read("in", io.Items([{"n": n} for n in range(start, start + count)], {"n": int})).write("out", sink)
    return flow


def heard(broker, topic="numbers"):
    """Return id and record of each message."""
    lines = [line.split(" ", 2) for line in witness.hear(broker.port, "witness", topic, qos=1, properties=True)]
    return [(told, json.loads(payload)) for _, told, payload in lines]


@with_a_broker
def test_each_message_has_an_id_of_its_own_as_a_property_of_mqtt_5(broker):
    witness.subscribe(broker.port, "witness", "numbers", qos=1)
    sink = io.Mqtt(broker.url, "numbers", qos=1, version="5", ids="property")
    engine.run(publishing(sink))
    engine.run(publishing(sink))
    found = heard(broker)
    assert [record["n"] for _, record in found] == [*range(100), *range(100)]
    assert len({told for told, _ in found}) == 200
    assert all(told.startswith("headwater-id:") for told, _ in found)


@with_a_broker
def test_mqtt_3_1_1_has_the_id_in_the_json_object_or_in_the_topic(broker):
    witness.subscribe(broker.port, "witness", "numbers/#", qos=1)
    engine.run(publishing(io.Mqtt(broker.url, "numbers", qos=1, ids="payload"), 3))
    engine.run(publishing(io.Mqtt(broker.url, "numbers", qos=1, ids="topic"), 3))
    lines = [each.split(" ", 2) for each in witness.hear(broker.port, "witness", "numbers/#", qos=1, properties=True)]
    topics, records = [topic for topic, _, _ in lines], [json.loads(payload) for _, _, payload in lines]
    assert [record["n"] for record in records] == [0, 1, 2, 0, 1, 2]
    assert len({record["headwater-id"] for record in records[:3]}) == 3
    assert topics[:3] == ["numbers"] * 3
    assert len({topic.removeprefix("numbers/") for topic in topics[3:]}) == 3


@with_a_broker
def test_who_receives_can_tell_what_is_sent_again_after_a_kill(broker, tmp_path):
    witness.subscribe(broker.port, "witness", "numbers", qos=1)
    checkpoint = tmp_path / "checkpoint"

    def flow():
        sink = io.Mqtt(broker.url, "numbers", qos=1, version="5", ids="property", retry="50 ms")
        return publishing(sink)

    def killed_before_it_notes_what_is_delivered():
        def forget(outbox, number):
            os.kill(os.getpid(), signal.SIGKILL)

        Outbox._forget = forget
        engine.run(flow(), checkpoint=checkpoint)

    kills_itself(killed_before_it_notes_what_is_delivered)
    engine.run(flow(), checkpoint=checkpoint)
    found = heard(broker)
    assert {record["n"] for _, record in found} == set(range(100))
    assert max(Counter(record["n"] for _, record in found).values()) == 2  # it was there, and came again
    by_id = {(told, record["n"]) for told, record in found}
    assert len(by_id) == len({told for told, _ in found}) == 100


@with_a_broker
def test_what_waits_in_a_log_has_the_same_id_whichever_run_sends_it(broker, tmp_path):
    witness.subscribe(broker.port, "witness", "numbers", qos=1)

    def sink():
        topic = io.Mqtt(broker.url, "numbers", qos=1, version="5", ids="property", patience="100 ms", retry="50 ms")
        return io.forward(topic, tmp_path / "up", linger="30 s")

    engine.run(publishing(sink(), 10))
    first = heard(broker)
    assert [record["n"] for _, record in first] == list(range(10))
    (tmp_path / "up" / "sender.reader").unlink()  # as if a crash had come before it was noted that they were sent
    witness.subscribe(broker.port, "witness", "numbers", qos=1)
    engine.run(publishing(sink(), 1, start=10))
    again = heard(broker)
    assert again[:10] == first
    assert [record["n"] for _, record in again[10:]] == [10]
    assert again[10][0] not in {told for told, _ in first}


def test_what_holds_says_by_what_receivers_can_tell():
    sink = io.Mqtt("localhost", "numbers", qos=1, ids="payload")
    [found] = guarantees(publishing(sink))
    assert found.holds == "at least once"
    assert found.weakest == (
        "sink 'out' (Mqtt(mqtt://localhost:1883/numbers)): what comes again has the same headwater-id, by which receivers "
        "can tell",
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ids": "property"}, "takes MQTT 5"),
        ({"ids": "payload", "payload": "text"}, "use ids='topic'"),
        ({"ids": "yes"}, "ids is one of 'payload', 'property', 'topic'; got 'yes'"),
    ],
)
def test_ids_that_cannot_be_had_are_told(options, told):
    with pytest.raises(FlowError, match=told):
        io.Mqtt("localhost", "numbers", **options)
