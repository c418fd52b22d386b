"""What a sender was told is safe: a log on disk, of which some may be damaged."""

import threading

import pytest

from headwater import Flow, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from waiting import wait_until

SCHEMA = Schema.of({"text": str})
COUNT = 5


class Sent:
    """A source whose sender waits to hear that what it sent is safe, one record at a time; and one that has no more."""

    schema = SCHEMA
    resume = "sender"

    def __init__(self, count):
        self.count, self.given, self.told = count, 0, 0

    def open(self, reject):
        return self

    def read(self, limit, timeout_s):
        if not self.count:
            return None
        if self.given == self.count:
            return Batch.none(SCHEMA)
        self.given += 1
        return Batch.of({"text": [f"text number {self.given - 1}"]}, SCHEMA)

    @property
    def position(self):
        return self.given

    def commit(self, position):
        self.told = position

    def close(self):
        pass


def reading(source, step):
    flow, out = Flow("received"), io.Collect()
    flow.read("r", source).map("m", step).write("w", out)
    return flow, out


@pytest.mark.parametrize("damaged", [0, 3])
def test_what_was_received_and_is_damaged_costs_that_alone_and_is_told(tmp_path, damaged):
    opened, source = threading.Event(), Sent(COUNT)
    flow, _ = reading(source, lambda record: opened.wait() and record)
    run = engine.start(flow, checkpoint=tmp_path / "state", every="1 h", grace_s=30)
    wait_until(lambda: source.told == COUNT)
    run.abort()
    opened.set()
    run.wait()
    wanted = f"text number {damaged}".encode()
    (path,) = (path for path in tmp_path.glob("state/sources/*/*.log") if wanted in path.read_bytes())
    content = bytearray(path.read_bytes())
    content[content.index(wanted)] ^= 1
    path.write_bytes(content)

    flow, out = reading(Sent(0), lambda record: record)
    report = engine.run(flow, checkpoint=tmp_path / "state")
    assert [row["text"] for row in out.records] == [f"text number {n}" for n in range(COUNT) if n != damaged]
    assert report.dead_letters == 1
    assert "what was received is damaged" in report.examples[0]["error"]
    assert engine.run(flow, checkpoint=tmp_path / "state").dead_letters == 0  # it is told once
