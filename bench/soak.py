"""An hour's worth of load, compressed: memory must stay flat, and no thread or file may be left behind.

Runs a flow with every kind of state at full speed in rounds, with keys that come and go, and reads the process's memory,
threads and open files after each round. Exits 1 if any of them grows. `--records` per round, `--rounds`. With
checkpoints that is `headwater bench hours`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time

import psutil

from headwater import engine
from headwater.engine.memory import share_arenas
from headwater_bench.experiments.hours import soaked

SENSORS_HZ = 1_000  # of event time: one round covers records / SENSORS_HZ seconds of it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    share_arenas()  # as `headwater run` does
    process = psutil.Process()
    readings = []
    for number in range(options.rounds):
        start = time.perf_counter()
        on = "threads" if number % 4 == 3 else "engine"
        report = engine.run(soaked(options.records, number * options.records, hz=SENSORS_HZ), on=on)
        gc.collect()
        now = (process.memory_info().rss / 2**20, threading.active_count(), process.num_fds())
        readings.append(now)
        rate = report.last.records_in / (time.perf_counter() - start)
        print(
            f"round {number:2d} on {on:7s}: {rate:9,.0f} records/s, {now[0]:6.1f} MB, {now[1]} threads, {now[2]} files"
        )
        assert report.dead_letters == report.left == 0
    settled, last = readings[len(readings) // 3], readings[-1]
    hours = options.records * options.rounds / SENSORS_HZ / 3600
    grown = last[0] - settled[0]
    print(f"{hours:.1f} h of event time; memory grew by {grown:.1f} MB after settling")
    return int(grown > 0.1 * settled[0] or last[1] > settled[1] or last[2] > settled[2])


if __name__ == "__main__":
    sys.exit(main())
