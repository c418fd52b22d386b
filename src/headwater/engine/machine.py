"""What this machine is, measured: `headwater profile --device` prints it, and plans can use it as a class of devices."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from headwater.cores import usable_cores
from headwater.data.jit import COMPILED
from headwater.engine import energy
from headwater.engine.operations import PER_TURN, operate
from headwater.flow import Batch, Flow, Schema
from headwater.io import Discard, Items
from headwater.net.device import DeviceClass
from headwater.net.net import Net
from headwater.net.wan import Gateways
from headwater.operators import Output, build

QUERIES = {
    "filter": "from read[height < 150] select height insert into out",
    "sequence of 3": "from every a = read, b = read[a.height == b.height], c = read[b.height == c.height] "
    "select a.height as x, c.height as y insert into out",
    "pattern of 3": "from every a = read -> b = read[a.height == b.height] -> c = read[b.height == c.height] "
    "select a.height as x, c.height as y insert into out",
    "mean of each 60": "from read#window.lengthBatch(60) select avg(height) as mean insert into out",
    "mean of the last 60": "from read#window.length(60) select avg(height) as mean insert into out",
}
"""One query of each kind: what the machine does with records, not with a loop."""
_BATCH = 8192
_COPIED = 64 * 2**20


def describe(*, seconds: float = 0.2, records: int = 200_000) -> dict[str, Any]:
    """Measure this machine for some seconds.

    `cpu_ips` counts simple whole-number operations of a compiled loop, all cores together. Published figures (those of
    the shipped classes) count the instructions of other programs, so a net should take all its classes from one scale.
    """
    cores = usable_cores()
    per_core = operations_per_s(seconds)
    return {
        "name": name(),
        "processor": _processor(),
        "cores": cores,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "compiled": COMPILED,
        "operations_per_s": per_core,
        "cpu_ips": cores * per_core,
        "copied_bytes_per_s": _copied_bytes_per_s(seconds),
        "records_per_s": {name: round(_records_per_s(query, records)) for name, query in QUERIES.items()},
        "energy": power_draw(seconds),
    }


def _records_per_s(query: str, records: int) -> float:
    """How many records one core takes through a query in a second of its own time, warmed up."""
    schema = Schema.of({"height": int})
    flow = Flow("query")
    flow.read("read", Items([], schema))
    flow.query("query", query).write("write", Discard())
    heights = np.random.default_rng(1).integers(0, 300, _BATCH)
    batch = Batch({"height": heights}, _BATCH, np.zeros((_BATCH, 2), np.int64))
    operators = [build(step) for step in flow.in_order() if not step.is_source and not step.is_sink]
    began = 0.0
    batches = max(1, records // _BATCH)
    for number in range(batches + 2):
        if number == 2:  # the first two compile
            began = time.thread_time()
        output: Output = batch
        for operator in operators:
            output = operator.process(output, 0) if isinstance(output, Batch) else None
    return batches * _BATCH / max(time.thread_time() - began, 1e-9)


def name() -> str:
    """What profiles call this machine, so that a plan knows it again."""
    return f"{platform.node()} ({platform.machine()})"


def as_net(description: dict[str, Any]) -> Net:
    """A net of this one device, to be written to a file and added to."""
    kind = DeviceClass(description["name"], description["cpu_ips"], memory_bytes=description["memory_bytes"])
    one = np.zeros(1)
    return Net("here", (kind,), ("here",), np.array([0, 1]), np.zeros(1, np.uint16), one, Gateways(one.copy()))


def operations_per_s(seconds: float) -> float:
    """How many simple operations one core does in a second: the best of five, since others only slow it down."""
    operate(1)
    turns = 10_000
    while (elapsed_s := _time_turns(turns)) < seconds / 5 and turns < 2**40:
        turns = int(turns * max(2.0, seconds / 5 / max(elapsed_s, 1e-9)))
    return turns * PER_TURN / min(_time_turns(turns) for _ in range(5))


def _time_turns(turns: int) -> float:
    began = time.thread_time()
    operate(turns)
    return time.thread_time() - began


def _copied_bytes_per_s(seconds: float) -> float:
    source = np.ones(_COPIED // 8)
    target = np.empty_like(source)
    np.copyto(target, source)  # memory that was never written to is slower
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began)
    return _COPIED / min(times)


def power_draw(seconds: float) -> dict[str, Any]:
    """Watts at rest and with one core busy, or why they cannot be read."""
    meter = energy.meter()
    if isinstance(meter, str):
        return {"readable": False, "why": meter}
    began, start = time.perf_counter(), meter.joules()
    time.sleep(seconds)
    rest_w = (meter.joules() - start) / (time.perf_counter() - began)
    began, start = time.perf_counter(), meter.joules()
    operations_per_s(seconds)
    return {
        "readable": True,
        "rest_w": rest_w,
        "busy_w": (meter.joules() - start) / (time.perf_counter() - began),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
