"""Records that wait on disk for a broker that is down when the flow starts."""

import time
from typing import Any

from broker import Broker

from headwater import Flow, engine, io
from waiting import PATIENCE_S


def test_more_records_than_a_client_buffers_wait_for_the_broker_and_arrive(tmp_path):
    broker = Broker().start()
    broker.stop()
    quick: dict[str, Any] = {"retry": "50 ms", "username": "tester", "qos": 1}

    def run(records, patience):
        up = io.Mqtt(broker.url, "levels", buffer=100, patience=patience, **quick)
        sink = io.forward(up, tmp_path / "log", linger="60 s")
        flow = Flow("gateway")
        flow.read("in", io.Items([{"n": n} for n in records], {"n": int})).write("out", sink)
        return engine.run(flow).to_json()["sinks"]["out"]

    account = run(range(1000), "200 ms")
    assert (account["forwarded"], account["waiting"], account["dropped"]) == (0, 1000, {})
    broker.start()
    reader = io.Mqtt(broker.url, "levels", {"n": int}, **quick).open(lambda text, error: None)
    try:
        until = time.monotonic() + PATIENCE_S
        while not reader.subscribed.is_set():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert run(range(1000, 1010), "60 s")["forwarded"] == 1010
        found = []
        while len(set(found)) < 1010 and time.monotonic() < until:
            found += reader.read(1000, 0.1)["n"].tolist()
        assert list(dict.fromkeys(found)) == list(range(1010))  # QoS 1: some may come twice
    finally:
        reader.close()
        broker.stop()
