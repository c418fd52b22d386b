"""Threads that read for senders, or deliver what waits on disk, wait for no compiler."""

import numpy as np
import pytest

from headwater import Flow, engine, io
from headwater.data.batch import Batch
from headwater.data.jit import kernel, service
from headwater.data.schema import Schema
from headwater.io.transactions.outbox import Outbox

SCHEMA = Schema.of({"n": int})


@pytest.fixture
def doubled(monkeypatch):
    """Return a kernel that is never compiled."""

    def doubled(numbers):
        return numbers * 2

    def wait(kernel, signature):
        raise AssertionError(f"something waits for {kernel}")

    monkeypatch.setattr(service, "from_cache", lambda kernel, signature: None)
    monkeypatch.setattr(service, "ask", lambda kernel, signature: None)
    monkeypatch.setattr(service, "wait_for", wait)
    return kernel(doubled)


class Sent:
    """A source whose sender waits to hear that what it sent is safe."""

    schema = SCHEMA
    resume = "sender"

    def __init__(self, doubled):
        self._doubled, self.position = doubled, 0

    def open(self, reject):
        return self

    def read(self, limit, timeout_s):
        if self.position:
            return None
        self.position = 1
        return Batch.of({"n": self._doubled(np.arange(3))}, SCHEMA)

    def commit(self, position):
        pass

    def close(self):
        pass


class Server:
    """A sink behind a network; records wait on disk for it, one by one."""

    remote = True

    def __init__(self, doubled):
        self._doubled, self.numbers = doubled, []

    def open(self, schema):
        return self

    def write(self, batch):
        self.numbers += self._doubled(batch["n"]).tolist()

    def close(self):
        pass


class Database(Server):
    """One that is written in parts, which wait on disk."""

    delivery = "transactional"

    def transaction(self, schema, ledger):
        return Outbox(self, self, ledger)

    def deliver(self, name, number, batches):
        for batch in batches:
            self.write(batch)
        return []


def test_who_reads_for_a_sender_waits_for_no_compiler(tmp_path, doubled):
    flow, out = Flow("received"), io.Collect()
    flow.read("r", Sent(doubled)).write("w", out)
    engine.run(flow, checkpoint=tmp_path / "state")
    assert [row["n"] for row in out.records] == [0, 2, 4]


@pytest.mark.parametrize("kind", [Server, Database])
def test_who_delivers_what_waits_on_disk_waits_for_no_compiler(tmp_path, doubled, kind):
    flow, sink = Flow("delivered"), kind(doubled)
    flow.read("r", io.Items([{"n": n} for n in range(3)])).write("w", sink)
    engine.run(flow, checkpoint=tmp_path / "state")
    assert sink.numbers == [0, 2, 4]
