"""An hour's worth of load, compressed: memory must stay flat, and no thread or file may be left behind.

Runs a flow with every kind of state at full speed in rounds, with keys that come and go, and reads the process's memory,
threads and open files after each round. Exits 1 if any of them grows. `--records` per round, `--rounds`.

With `--hours 2 --hz 20000` it is one run instead, with a checkpoint each second, stopped and gone on with at every round,
until so much of event time has passed, as fast as it goes; the checkpoint's folder must be bounded too.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from headwater import Count, Flow, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.engine.memory import share_arenas

SECOND = 1_000_000
_SEEN = ("memory", "threads", "open files", "files of the checkpoint", "bytes of the checkpoint")
SENSORS_HZ = 1_000  # of event time: one round covers records / SENSORS_HZ seconds of it


def make(numbers, hz):
    return {
        "sensor": numbers % 5_000 + numbers // 500_000 % 20 * 1_000,  # sensors come and go, and come again
        "value": (numbers * 7919 % 1000) / 10,
        "at": 1_700_000_000 * SECOND + numbers * (SECOND // hz),
    }


def soaked(records: int | None, first: int = 0, hz: int = SENSORS_HZ) -> Flow:
    flow = Flow("soak")
    schema = {"sensor": int, "value": float, "at": "time"}
    source = io.Generate(lambda n: make(n + first, hz), schema, rate=10_000_000, count=records)
    readings = flow.read("readings", source).event_time("clock", "at", lateness="2 s")
    keyed = readings.filter("valid", col.value < 99).key_by("sensor")
    keyed.window("minute", Tumbling("1 min"), mean=agg.mean("value")).write("minutes", io.Discard())
    keyed.window("slide", Sliding("1 min", "20 s"), top=agg.max("value")).write("slides", io.Discard())
    keyed.window("last five", Count(5), mean=agg.mean("value")).write("fives", io.Discard())
    quiet = readings.filter("some", col.sensor % 100 == 0).key_by("sensor")
    quiet.window("busy times", Session("10 s"), n=agg.count()).write("sessions", io.Discard())
    quiet.process("count", lambda n, r: ((n or 0) + 1, None), out={"n": int}).write("nothing", io.Discard())
    return flow


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--hours", type=float, help="of event time, in one run with checkpoints")
    parser.add_argument("--hz", type=int, default=20_000, help="records for each second of those")
    parser.add_argument("--seconds", type=float, default=20.0, help="until it is stopped and goes on")
    options = parser.parse_args()
    if options.hours is not None:
        return kept(options.hours, options.hz, options.seconds)
    share_arenas()  # as `headwater run` does
    process = psutil.Process()
    readings = []
    for number in range(options.rounds):
        start = time.perf_counter()
        on = "threads" if number % 4 == 3 else "engine"
        report = engine.run(soaked(options.records, number * options.records), on=on)
        gc.collect()
        seen = (process.memory_info().rss / 2**20, threading.active_count(), process.num_fds())
        readings.append(seen)
        rate = report.last.records_in / (time.perf_counter() - start)
        print(
            f"round {number:2d} on {on:7s}: {rate:9,.0f} records/s, {seen[0]:6.1f} MB, {seen[1]} threads, {seen[2]} files"
        )
        assert report.dead_letters == report.left == 0
    settled, last = readings[len(readings) // 3], readings[-1]
    hours = options.records * options.rounds / SENSORS_HZ / 3600
    grown = last[0] - settled[0]
    print(f"{hours:.1f} h of event time; memory grew by {grown:.1f} MB after settling")
    return int(grown > 0.1 * settled[0] or last[1] > settled[1] or last[2] > settled[2])


def kept(hours: float, hz: int, seconds: float) -> int:
    """Run with checkpoints until so much event time has passed; return whether anything grew."""
    share_arenas()
    process, readings, records = psutil.Process(), [], 0
    with tempfile.TemporaryDirectory(prefix="headwater-soak-") as folder:
        while records < hours * 3600 * hz:
            report = engine.run(soaked(None, hz=hz), checkpoint=folder, every="1 s", seconds=seconds)
            gc.collect()
            sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
            seen = process.memory_info().rss / 2**20, threading.active_count(), process.num_fds(), len(sizes)
            readings.append((*seen, sum(sizes) / 2**20))
            records += report.last.records_in
            made, mb = report.extra["checkpoints"], sum(sizes) / 2**20
            print(
                f"{records / hz / 3600:5.2f} h of event time: {report.last.records_in / report.seconds:9,.0f} records/s, "
                f"{seen[0]:6.1f} MB, {seen[1]} threads, {seen[2]} files open; {made['complete']} checkpoints, "
                f"{made['failed']} failed, slowest {made['slowest_s']:.2f} s, {len(sizes)} files of {mb:.1f} MB",
                flush=True,
            )
            assert report.dead_letters == report.left == made["failed"] == 0
    settled, last = readings[len(readings) // 3], readings[-1]
    grown = [name for name, before, now in zip(_SEEN, settled, last, strict=True) if now > 1.2 * before]
    print("what grew after settling:", ", ".join(grown) or "nothing")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
