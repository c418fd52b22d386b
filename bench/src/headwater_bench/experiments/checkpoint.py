"""Experiment `checkpoint`: what checkpoints cost a flow, how large they are, and how long going on from one takes.

RIoTBench's ETL runs at full speed without checkpoints and with one per second, by turns; then both at a rate well below, for
what it does to the slowest records. A step with 100 MB of state by key is saved, also with one key in a hundred changed,
and loaded by a new run; what that has is compared with what was saved. On a busy machine times say little: `cpu` is what
checkpoints add to the processor time of a message, and `restore_cpu_s_100mb` that of loading.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from headwater import Flow, col, engine, io
from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.flow.endpoints import Source
from headwater.flow.state import Cell
from headwater.metrics import Report
from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.experiments.trial import machine
from headwater_bench.riot.etl import etl
from headwater_bench.riot.sources import generated

_T = TypeVar("_T")

_KEY_BYTES = 80  #: of state by key: its key, a total and eight numbers


def run(
    quick: bool = False, output: Path | None = None, *, messages: int | None = None, repeats: int | None = None
) -> dict[str, Any]:
    """Measure all; raises AssertionError where what was loaded is not what was saved."""
    count, times = messages or (500_000 if quick else 2_000_000), repeats or (3 if quick else 9)
    with tempfile.TemporaryDirectory(prefix="headwater-checkpoint-") as folder:
        _rate(20_000, None)  # all is compiled by now
        both = _by_turns(times, lambda i, keeps: _rate(count, Path(folder, f"rate {i}") if keeps else None))
        pairs = [(without.rate_hz, with_.rate_hz) for without, with_ in both]
        highest = statistics.median(without for without, _ in pairs)
        seconds = 3.0 if quick else 10.0
        slow = _by_turns(
            times, lambda i, keeps: _p99_ms(highest / 4, seconds, Path(folder, f"p99 {i}") if keeps else None)
        )
        large = _large_state(Path(folder, "large"), 100 * 10**6)
    answer = {
        "overhead": round(statistics.median(with_ / without for without, with_ in pairs), 3),
        "cpu": round(statistics.median(with_.cpu_s / without.cpu_s for without, with_ in both) - 1, 3),
        "p99_growth_ms": round(statistics.median(with_ - without for without, with_ in slow), 2),
        **large,
        "messages": count,
        "repeats": times,
        "rate_hz": round(highest),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
    }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        rows = [{"without_hz": a, "with_hz": b} for a, b in pairs] + [
            {"without_p99_ms": a, "with_p99_ms": b} for a, b in slow
        ]
        write_rows([{**dict.fromkeys(("without_hz", "with_hz", "without_p99_ms", "with_p99_ms")), **r} for r in rows],
                   output / "checkpoint.csv")  # fmt: skip
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer as text."""
    return "\n".join(text_table(["", ""], [[name, value] for name, value in answer.items()]))


# -- what they cost -------------------------------------------------------------------------------------------------------


class _Speed(NamedTuple):
    """How fast a run was."""

    rate_hz: float
    cpu_s: float  #: processor time, which a busy machine changes less than time


def _by_turns(times: int, measure: Callable[[int, bool], _T]) -> list[tuple[_T, _T]]:
    """Measure without and with checkpoints, by turns; who comes first changes too, since machines warm up and tire."""
    pairs = []
    for number in range(times):
        first = measure(number, number % 2 == 1)
        second = measure(number, number % 2 == 0)
        pairs.append((first, second) if number % 2 == 0 else (second, first))
    return pairs


def _run(source: Source, count: int, folder: Path | None) -> Report:
    """Run ETL to its end, and look at its answer."""
    options: dict[str, Any] = {} if folder is None else {"checkpoint": folder, "every": "1 s"}
    report = engine.run(etl(source), **options)
    last = report.last
    if (
        last.records_in != count
        or report.left
        or any(last.records_out[name] != count for name in ("insert", "publish"))
    ):
        raise AssertionError(
            f"{last.records_in} of {count} messages were read, {last.records_out} came out, {report.left} are left"
        )
    return report


def _rate(count: int, folder: Path | None) -> _Speed:
    """Return the speed of ETL when nothing holds it."""
    began_s = time.process_time()
    report = _run(generated("CITY", 1e9, count=count), count, folder)
    return _Speed(count / report.seconds, time.process_time() - began_s)


def _p99_ms(rate_hz: float, seconds: float, folder: Path | None) -> float:
    """Return the time that all but one record in a hundred take at a rate."""
    count = round(rate_hz * seconds)
    return _run(generated("CITY", rate_hz, count=count), count, folder).last.latency.percentile(99) / 1e6


# -- how large they are ---------------------------------------------------------------------------------------------------


class _Numbers:
    """Keeps eight numbers and a total by key."""

    state: Mapping[str, Cell] = {"total": Cell("int64"), "last": Cell("float64", shape=(8,))}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> dict[str, Any]:
        """Add the record's number up, and keep it."""
        np.add.at(state["total"], slots, batch["x"])
        state["last"][slots, 0] = batch["x"]
        return {}


def _flow(keys: int) -> Flow:
    """A step that keeps something of every key, and gives nothing."""
    flow = Flow("large")
    source = io.Generate(lambda numbers: {"k": numbers, "x": numbers + 1}, {"k": int, "x": int}, rate=1e9, count=keys)
    stream = flow.read("read", source).key_by("k").scan("keep", _Numbers(), out={"k": int, "x": int})
    stream.filter("none", col.x < 0).write("write", io.Collect())
    return flow


def _large_state(folder: Path, nbytes: int) -> dict[str, Any]:
    keys = nbytes // _KEY_BYTES
    first = engine.start(_flow(keys), checkpoint=folder)
    first.wait()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    second = engine.start(_flow(keys), checkpoint=folder)
    restore_s, restore_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    second.wait()
    old, new = (next(task.operator for task in run.tasks if task.name == "keep") for run in (first, second))
    assert old is not None
    assert new is not None
    if old.snapshot() != new.snapshot():
        raise AssertionError("what was loaded is not what was saved")
    began_s = time.perf_counter()
    whole = new.freeze(whole=True)
    hold_s = time.perf_counter() - began_s
    some = np.arange(0, keys, 100)
    new.process(Batch({"k": some, "x": some}, len(some), np.zeros((len(some), 2), np.int64)), 0)
    full = len(whole.encode())
    return {
        "restore_s_100mb": round(restore_s * 100e6 / full, 3),
        "restore_cpu_s_100mb": round(restore_cpu_s * 100e6 / full, 3),
        "bytes_full": full,
        "bytes_incremental": len(new.freeze(whole=False).encode()),
        "hold_ms": round(1000 * hold_s, 1),
    }
