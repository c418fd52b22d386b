"""STATS on a standalone cluster of this machine beside one core of it; a worker that is killed, and one that joins.

Each run is a process of its own: on `local[1]`, on two workers of one core each, and on two of which one is killed when a
third of the messages is read, whereupon a third one joins. Results are compared line by line with those of the first run. A
rate counts behind the first third, when executors have started and Java has compiled.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.cores import whole_cores
from headwater.errors import RunError
from headwater.flow.ranges import Sizes
from headwater.io import Csv
from headwater.processes import ending
from headwater.spark.cluster import Cluster, standalone
from headwater_bench.experiments.rows import write_rows
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.generate import messages as generated
from headwater_bench.riot.sources import MessageFile
from headwater_bench.riot.stats import stats

MESSAGES, QUICK = 300_000, 30_000
SENSORS = 2_700
_BATCHES = 12  #: micro-batches of a run, so that there are moments between them
_TOLD_S = 0.2
_PATIENCE_S = 900.0

#: moments, in seconds, and how many messages were read by then
Told = list[tuple[float, int]]


def run(
    quick: bool = False, output: Path | None = None, *, messages: int | None = None, repeats: int | None = None
) -> dict[str, Any]:
    """Compare; `messages` are those of one run."""
    count, times = messages or (QUICK if quick else MESSAGES), repeats or (1 if quick else 3)
    rates: dict[str, list[float]] = {"local": [], "cluster": []}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        path = folder / "messages.txt"
        _write(path, count)
        for _ in range(times):
            rates["local"].append(_rate(_run("local[1]", path, folder / "local.csv"), count))
            with standalone(workers=2) as cluster:
                rates["cluster"].append(_rate(_run(cluster.url, path, folder / "cluster.csv"), count))
        with standalone(workers=2) as cluster:
            change = _Change(cluster, count)
            _run(cluster.url, path, folder / "changed.csv", change)
            executors = cluster.executors()
        expected = _lines(folder / "local.csv")
        equal = {form: _lines(folder / f"{form}.csv") == expected for form in ("cluster", "changed")}
    answer: dict[str, Any] = {
        "messages": count,
        "results": len(expected),
        "rates": {form: round(statistics.median(tried)) for form, tried in rates.items()},
        "over_local": round(statistics.median(map(_ratio, rates["cluster"], rates["local"])), 2),
        "equal": equal,
        "killed_at": change.killed_at,
        "joined_at": change.joined_at,
        "executors": executors,
        "machine": f"{platform.machine()}, {whole_cores()} cores",
        "repeats": times,
    }
    if output is not None:
        rows = [{"form": form, "messages_per_s": rate} for form, rate in answer["rates"].items()]
        write_rows(rows, output / "cluster.csv")
    return answer


class _Change:
    """Kills a worker when a third of the messages is read, and has another one join soon after."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self._cluster, self._count = cluster, count
        self.killed_at = self.joined_at = 0  #: messages that were read by then

    def __call__(self, read: int) -> None:
        """Hear how many messages are read."""
        if not self.killed_at and read >= self._count / 3:
            self._cluster.kill_worker(0)
            self.killed_at = read
        elif self.killed_at and not self.joined_at:
            self._cluster.add_worker()
            self.joined_at = read


def _write(path: Path, count: int) -> None:
    city, size = CityStream(seed=1, sensors=SENSORS), 10_000
    with path.open("wb") as file:
        for first in range(0, count, size):
            file.writelines(line + b"\n" for line in generated(city, first, min(size, count - first)).bytes_list())


def _lines(path: Path) -> list[str]:
    """Return the results of a run in an order that does not depend on which bucket was first."""
    return sorted(path.read_text().splitlines())


def _run(master: str, path: Path, out: Path, hear: Callable[[int], None] = lambda read: None) -> Told:
    """Run the flow in a process of its own, and let somebody hear how far it has come."""
    command = [sys.executable, "-m", "headwater_bench.experiments.cluster", master, str(path), str(out)]
    told: Told = []
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        timer = threading.Timer(_PATIENCE_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                told.append(json.loads(line))
                hear(told[-1][1])
            process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            said.seek(0)
            raise RunError(f"STATS on {master} {ending(process.returncode)}: {said.read().strip()[-500:]}")
    return told


def _rate(told: Told, count: int) -> float:
    """Return messages per second behind the first third; 0 where all came at once."""
    begun_s, begun = next(each for each in told if each[1] >= count / 3)
    ended_s, ended = next(each for each in told if each[1] >= count)
    return (ended - begun) / (ended_s - begun_s) if ended > begun else 0.0


def _ratio(one: float, other: float) -> float:
    return one / other if other else 0.0


def table(answer: dict[str, Any]) -> str:
    """Show what was measured, in words."""
    rates, equal = answer["rates"], answer["equal"]
    return "\n".join(
        [
            f"STATS over {answer['messages']:,} messages: {rates['local']:,}/s on local[1], {rates['cluster']:,}/s on two "
            f"workers of one core each, {answer['over_local']} times as many ({answer['machine']})",
            f"the same results: {'yes' if equal['cluster'] else 'NO'}; with a worker killed after {answer['killed_at']:,} "
            f"messages and one that joined after {answer['joined_at']:,}, on {answer['executors']} executors in all: "
            f"{'yes' if equal['changed'] else 'NO'}",
        ]
    )


def _main(master: str, path: Path, out: Path) -> None:
    """Run the flow here, and print now and then how far it has come."""
    from headwater import spark

    sizes = Sizes(2, batch_bytes=max(1, path.stat().st_size // _BATCHES))
    running = spark.start(stats(MessageFile(path), publish=Csv(out)), master=master, sizes=sizes)
    over = None
    while over is None:
        over = running.wait(_TOLD_S)
        print(json.dumps([time.monotonic(), running.sample().records_in]), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
