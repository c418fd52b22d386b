"""Experiment `hours`: hours of event time at 20,000 records/s with checkpoints, as fast as it goes: does anything grow?

A flow with windows of every kind and state by key, whose keys come and go, makes a checkpoint each second, and is stopped
and gone on with now and then. Memory, threads, open files and the checkpoint's folder are looked at all the while; `grown`
names what is larger by a fifth in the last third than it was in the middle one.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwater import Count, Flow, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.data.column import Array
from headwater.engine.memory import share_arenas
from headwater_bench.experiments.rows import text_table, write_rows
from headwater_bench.experiments.trial import machine

_SECOND = 1_000_000
_LOOK_S = 0.5
_MORE = 1.2  #: times as much, and it has grown
_SETTLED_H = 1.0  #: in less than that nothing is settled, and what grows is told alone


@dataclass(frozen=True, slots=True)
class Look:
    """How things stood at a moment."""

    event_h: float
    rss_mb: float
    threads: int
    open_files: int
    folder_files: int
    folder_mb: float


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    hours: float | None = None,
    hz: int = 20_000,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Run until so much of event time has passed; raises AssertionError if anything grew in an hour or more."""
    wanted_h, life_s = hours or (0.1 if quick else 2.0), seconds or (4.0 if quick else 15.0)
    share_arenas()  # as `headwater run` does
    looks: list[Look] = []
    records = complete = failed = stops = 0
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="headwater-hours-") as place:
        folder = Path(place)
        while records < wanted_h * 3600 * hz:
            run = engine.start(soaked(None, hz=hz), checkpoint=folder, every="1 s")
            until_s = time.monotonic() + life_s
            while time.monotonic() < until_s:
                looks.append(_look(folder, (records + run.sample().records_in) / hz / 3600))
                time.sleep(_LOOK_S)
            run.stop()
            report = run.wait()
            assert report is not None
            assert report.dead_letters == report.left == 0
            records, stops = records + report.last.records_in, stops + 1
            checkpoints = report.extra["checkpoints"]
            complete, failed = complete + checkpoints["complete"], failed + checkpoints["failed"]
            gc.collect()
    grown = _grown(looks)
    answer = {
        "event_hours": round(records / hz / 3600, 2),
        "records": records,
        "records_per_s": round(records / (time.perf_counter() - began_s)),
        "checkpoints": complete,
        "failed": failed,
        "stops": stops,
        **{name: _range(looks, name) for name in Look.__slots__ if name != "event_h"},
        "grown": grown,
        "machine": machine(),
    }
    if output is not None:
        write_rows([asdict(look) for look in looks], output / "hours.csv")
    if failed or (grown and wanted_h >= _SETTLED_H):
        raise AssertionError(f"{grown} grew, {failed} checkpoints failed: {answer}")
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer as text."""
    return "\n".join(text_table(["", ""], [[name, value] for name, value in answer.items()]))


def soaked(records: int | None, first: int = 0, *, hz: int) -> Flow:
    """Describe the flow: windows of every kind and state by key, of records that are so many in a second of event time."""
    flow = Flow("soak")
    schema = {"sensor": int, "value": float, "at": "time"}

    def make(numbers: Array) -> dict[str, Any]:
        numbers = numbers + first
        return {
            "sensor": numbers % 5_000 + numbers // 500_000 % 20 * 1_000,  # sensors come and go, and come again
            "value": (numbers * 7919 % 1000) / 10,
            "at": 1_700_000_000 * _SECOND + numbers * (_SECOND // hz),
        }

    source = io.Generate(make, schema, rate=10_000_000, count=records)
    readings = flow.read("readings", source).event_time("clock", "at", lateness="2 s")
    keyed = readings.filter("valid", col.value < 99).key_by("sensor")
    keyed.window("minute", Tumbling("1 min"), mean=agg.mean("value")).write("minutes", io.Discard())
    keyed.window("slide", Sliding("1 min", "20 s"), top=agg.max("value")).write("slides", io.Discard())
    keyed.window("last five", Count(5), mean=agg.mean("value")).write("fives", io.Discard())
    quiet = readings.filter("some", col.sensor % 100 == 0).key_by("sensor")
    quiet.window("busy times", Session("10 s"), n=agg.count()).write("sessions", io.Discard())
    quiet.process("count", lambda n, r: ((n or 0) + 1, None), out={"n": int}).write("nothing", io.Discard())
    return flow


def _look(folder: Path, event_h: float) -> Look:
    files, nbytes = 0, 0
    for path in folder.rglob("*"):
        try:
            files, nbytes = files + path.is_file(), nbytes + path.stat().st_size
        except FileNotFoundError:  # removed meanwhile
            continue
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    rss_mb = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    open_files = len(os.listdir("/proc/self/fd"))
    return Look(event_h, round(rss_mb, 1), threading.active_count(), open_files, files, round(nbytes / 2**20, 2))


def _range(looks: Sequence[Look], name: str) -> list[float]:
    """Return the most there was, by thirds."""
    third = max(1, len(looks) // 3)
    parts = looks[:third], looks[third : 2 * third], looks[2 * third :]
    return [max((getattr(look, name) for look in part), default=0) for part in parts]


def _grown(looks: Sequence[Look]) -> list[str]:
    ranges = {name: _range(looks, name) for name in Look.__slots__ if name != "event_h"}
    return [name for name, (_, middle, last) in ranges.items() if last > _MORE * middle]
