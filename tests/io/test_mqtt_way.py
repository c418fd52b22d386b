"""The way of a record from an MQTT broker to a sink, on the engine: who hands it on, file by file."""

import threading
from pathlib import Path

import pytest
from mosquitto import PROGRAM, Mosquitto

import headwater
from headwater import Batch, Flow, Schema, engine, io
from headwater.io.mqtt.client import ReceivedMessages
from headwater.operators.queue import Delivery, QueueEntry

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="mosquitto is not installed")

ROOT = Path(headwater.__file__).parent
SINK = "the sink"
#: what records are made of: passing one to its own methods is not handing it on
FORMS = {"data/batch.py", "data/column.py", "io/mqtt/client.py"}
MOST = 10


def carries(value, depth=2):
    """Say whether records are in a value, in any of the forms that they take on their way."""
    if isinstance(value, QueueEntry | Delivery):
        return value.batch is not None
    if isinstance(value, list | tuple) and depth:
        return any(carries(each, depth - 1) for each in value)
    return isinstance(value, Batch | ReceivedMessages)


class Way:
    """Sees records pass from a function of one file to one of another: as an argument, or as what it returns."""

    def __init__(self):
        self.passes = set()

    def __call__(self, frame, event, what):
        if event == "c_call" and what.__name__ == "recv_into":  # the first of all
            self.passes.add((file_of(frame), file_of(frame.f_back)))
        if event not in ("call", "return") or frame.f_back is None:
            return
        mine, callers = (file_of(each) for each in (frame, frame.f_back))
        if mine is None or callers is None or mine == callers:
            return
        if event == "return" and carries(what):
            self.passes.add((mine, callers))
        elif event == "call" and any(map(carries, list(frame.f_locals.values()))):
            self.passes.add((callers, mine))

    def handing_on(self):
        """Return the files that hand records on; who only looks at them, as a counter does, is none of these."""
        return {sender for sender, receiver in self.passes if sender not in FORMS and receiver not in FORMS}


def file_of(frame):
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(ROOT):
        return str(path.relative_to(ROOT))
    return SINK if path == Path(__file__) else None


class Sink:
    """Where the way ends; a sink is one file more."""

    def __init__(self):
        self.records = 0

    def open(self, schema):
        return self

    def write(self, batch):
        self.records += batch.length

    def close(self):
        pass


def test_ten_files_hand_a_record_on_from_a_broker_to_a_sink(tmp_path):
    broker, way, flow, sink = Mosquitto(tmp_path).start(), Way(), Flow("way"), Sink()
    schema = Schema.of({"n": int})
    try:
        flow.read("in", io.Mqtt(broker.url, "way", schema, qos=1)).write("out", sink)
        writer = io.Mqtt(broker.url, "way", qos=1).open(schema)
        threading.setprofile(way)  # of the threads that the run starts
        try:
            run = engine.start(flow)
        finally:
            threading.setprofile(None)
        while not sink.records:  # what is sent before the reader has subscribed is lost
            writer.write(Batch.of({"n": list(range(50))}, schema))
            assert run.wait(0.1) is None
        run.stop()
        run.wait()
        writer.close()
    finally:
        broker.stop()
    on_the_way = way.handing_on()
    assert {"io/mqtt/transport.py", "engine/source.py", "operators/write.py"} <= on_the_way, "the way is not seen"
    assert len(on_the_way | {SINK}) <= MOST, sorted(on_the_way)
