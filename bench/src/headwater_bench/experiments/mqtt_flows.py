"""The systems under test of `headwater bench mqtt`, each a process of its own, and the messages that they get."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import DEVNULL, Popen
from typing import Any

import numpy as np

from headwater import Flow, col, engine
from headwater.flow import aggregates as agg
from headwater.flow.stream import Stream
from headwater.flow.windows import Count
from headwater.io import Mqtt
from headwater_bench.experiments.demo import Numbered
from headwater_bench.experiments.mqtt_kernels import BASE, echoed
from headwater_bench.experiments.mqtt_load import IN, OUT
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream

TASKS = ("filter", "mean", "etl")
_LINES = 200
_FLAT = {"ts": int, "source": str, "temperature": float, "humidity": float}
_SENSORS = 50


def lines_for(task: str) -> list[bytes]:
    """Return messages with the number that the load replaces: SenML for ETL, flat JSON for the others."""
    if task == "etl":
        city = stream("CITY")
        times = [str(time_ms).encode() for time_ms in np.asarray(city.columns(0, _LINES)["time_ms"]).tolist()]
        texts = messages(city, 0, _LINES).bytes_list()
        return [text.replace(time_ms, str(BASE).encode()) for text, time_ms in zip(texts, times, strict=True)]
    draws = np.random.default_rng(1)
    return [
        b'{"ts":%d,"source":"sensor-%03d","longitude":"%.5f","latitude":"%.5f","temperature":%.1f,"humidity":%.1f,'
        b'"light":%.1f,"dust":%.2f,"airquality_raw":%.1f}'
        % (BASE, n % _SENSORS, *draws.uniform(5, 50, 2), *draws.uniform(5, 35, 2), *draws.uniform(0, 1000, 3))
        for n in range(_LINES)
    ]


def flow_of(task: str, url: str, qos: int) -> Flow:
    """Build what is measured: one result for each message, but for the first four of a sensor in `mean`."""
    level: Any = qos
    flow, out = Flow(task), Mqtt(url, OUT, qos=level)
    if task == "filter":
        warm = flow.read("in", Mqtt(url, IN, _FLAT, qos=level)).filter("warm", col.temperature > 0)
        warm.select("chosen", "ts", "source", "temperature").write("out", out)
    elif task == "mean":
        keyed = flow.read("in", Mqtt(url, IN, _FLAT, qos=level)).key_by("source")
        keyed.window("last five", Count(5, every=1), ts=agg.max("ts"), mean=agg.mean("temperature")).write("out", out)
    else:
        source = Numbered(Mqtt(url, IN, {"message": str}, payload="text", qos=level))
        whole = etl(source, wide=True)
        flow = Flow.of_steps("etl", [step for step in whole.steps.values() if step.name != "publish"])
        sink = Mqtt(url, OUT, payload="text", qos=level)
        Stream(flow, "senml").select("payload", "senml").write("publish", sink)
    return flow


@contextmanager
def running(task: str, port: int, qos: int = 0, *, durable: bool = False) -> Iterator[Popen[bytes]]:
    """Run a task, or `echo`, as a process that connects to a broker.

    A `durable` one keeps a checkpoint: messages are acknowledged when they are safe in a log, and results leave by another.
    """
    with tempfile.TemporaryDirectory() as folder:
        words = [task, str(port), str(qos), *([f"{folder}/state"] if durable else [])]
        process = Popen([sys.executable, "-m", "headwater_bench.experiments.mqtt_flows", *words], stderr=DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)


def _echo(port: int) -> None:
    """Send every message back, and do nothing else: what load and broker can carry."""
    end = socket.create_connection(("127.0.0.1", port))
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = b"\0\4MQTT\4\2\0\0\0\4echo"
    end.sendall(bytes([0x10, len(body)]) + body)
    end.recv(4)
    body = b"\0\1" + bytes([0, len(IN)]) + IN.encode() + b"\0"
    end.sendall(bytes([0x82, len(body)]) + body)
    end.recv(5)
    buffer, have = np.empty(1 << 21, np.uint8), 0
    echoed(buffer, 0, ord(OUT[-1]))
    while count := end.recv_into(buffer.data[have:]):
        have += count
        whole = echoed(buffer, have, ord(OUT[-1]))
        end.sendall(buffer.data[:whole])
        rest = buffer[whole:have].copy()
        have = len(rest)
        buffer[:have] = rest


if __name__ == "__main__":
    name, place, level = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if name == "echo":
        _echo(place)
    else:
        state = sys.argv[4] if len(sys.argv) > 4 else None
        engine.run(flow_of(name, f"mqtt://127.0.0.1:{place}", level), checkpoint=state)
