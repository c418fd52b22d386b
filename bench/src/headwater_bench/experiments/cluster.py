"""A flow on a standalone cluster of this machine beside `local[1]`; a worker that is killed, and one that joins.

A cluster is several machines, and this is one. So each machine that is played has a share of this one and no more, by a
control group: the one of `local[1]`, on which Java and Python share what it has, and those of the workers of one core each.
What is left is the driver's and the master's. Where no groups can be made nothing is bounded, and that is told.

Each run is a process of its own: on `local[1]`, on one worker, on two, and on two of which one is killed when a third of the
messages is read, whereupon a third one joins. Results, which tasks write into a table, are compared record by record with
those of the first run. A rate counts behind the first third, when executors have started and Java has compiled. Keys are in
as many buckets as there are cores in all.

Beside rates stands the processor time of a message, by who took it. Where `local[1]` has one Java, a cluster has one for
each executor and one that only plans: what those take more is Spark's own.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headwater.cores import whole_cores
from headwater.deploy.local.quota import Quotas
from headwater.errors import RunError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.ranges import Sizes
from headwater.io import ParquetTable
from headwater.processes import ending
from headwater.rate import cgroups
from headwater.spark.cluster import Cluster, standalone
from headwater_bench.experiments.processors import KINDS, Processors
from headwater_bench.experiments.rows import write_rows
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages as generated
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MessageFile
from headwater_bench.riot.stats import stats

FLOW = "stats"
MESSAGES, QUICK = 900_000, 60_000
REPEATS = 2
SHARE = 0.3  #: of this machine's cores that each machine which is played has; a third is the driver's and the master's
SENSORS = 2_700
_BATCHES = 12  #: micro-batches of a run, so that there are moments between them
_TOLD_S = 0.2
_PATIENCE_S = 900.0

#: moments, in seconds, how many messages were read by then, and the processor seconds of each kind of process
Told = list[tuple[float, int, dict[str, float]]]

FLOWS: dict[str, Callable[[Path, Path], Flow]] = {
    "etl": lambda path, out: etl(MessageFile(path), wide=True, publish=ParquetTable(out)),
    "stats": lambda path, out: stats(MessageFile(path), publish=ParquetTable(out)),
    "pred": lambda path, out: pred(MessageFile(path), publish=ParquetTable(out)),
}


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flow: str = FLOW,
    messages: int | None = None,
    repeats: int | None = None,
) -> dict[str, Any]:
    """Compare; `messages` are those of one run."""
    if flow not in FLOWS:
        raise RunError(f"there is no flow {flow!r} to measure; known are {listed(FLOWS)}{suggestion(flow, FLOWS)}")
    count, times = messages or (QUICK if quick else MESSAGES), repeats or (1 if quick else REPEATS)
    measured: dict[str, list[_Measured]] = {form: [] for form in ("local", "one worker", "cluster")}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name, _Machines() as machines:
        folder = Path(name)
        path = folder / "messages.txt"
        _write(path, count)
        for turn in range(times):
            made = folder / f"local-{turn}"
            measured["local"].append(_measured(_run("local[1]", flow, path, made, 1, machines.bound), count))
            for form, workers in (("one worker", 1), ("cluster", 2)):
                with machines.cluster(workers) as cluster:
                    told = _run(cluster.url, flow, path, folder / f"{form}-{turn}", workers, keepers=cluster.keepers())
                    measured[form].append(_measured(told, count))
        with machines.cluster(2) as cluster:
            change = _Change(cluster, count, machines.bound)
            _run(cluster.url, flow, path, folder / "changed", 2, hear=change)
            executors = cluster.executors()
        expected = _records(folder / "local-0")
        equal = {form: _records(folder / f"{form}-0") == expected for form in ("one worker", "cluster")}
        equal["changed"] = _records(folder / "changed") == expected
    rates = {form: [each.rate for each in tried] for form, tried in measured.items()}
    medians = {form: round(statistics.median(each)) for form, each in rates.items()}
    answer: dict[str, Any] = {
        "flow": flow,
        "messages": count,
        "results": len(expected),
        "rates": medians,
        "over_local": round(statistics.median(map(_ratio, rates["cluster"], rates["local"])), 2),
        "over_one_worker": round(statistics.median(map(_ratio, rates["cluster"], rates["one worker"])), 2),
        "processor_us": {form: _medians([each.processor_us for each in tried]) for form, tried in measured.items()},
        "cores_of_a_machine": machines.cores,
        "equal": equal,
        "killed_at": change.killed_at,
        "joined_at": change.joined_at,
        "executors": executors,
        "machine": f"{platform.machine()}, {whole_cores()} cores",
        "repeats": times,
    }
    if output is not None:
        write_rows([{"form": form, "messages_per_s": rate} for form, rate in medians.items()], output / "cluster.csv")
    return answer


class _Machines(AbstractContextManager["_Machines"]):
    """Bounds processes to what a machine has that is played on this one, where control groups can be made."""

    def __init__(self) -> None:
        groups = cgroups.find()
        self._quotas = None if groups is None else Quotas(groups)
        self._count = 0
        #: what each has; None where nothing is bounded
        self.cores = None if groups is None else round(SHARE * whole_cores(), 2)

    def __exit__(self, *raised: object) -> None:
        if self._quotas is not None:
            self._quotas.close()

    def bound(self, pid: int) -> None:
        """Have a process, and all that it will start, be on a machine of its own."""
        if self._quotas is not None and self.cores is not None:
            self._quotas.bound(pid, self._count, self.cores)
            self._count += 1

    @contextmanager
    def cluster(self, workers: int) -> Iterator[Cluster]:
        """Run a cluster each of whose workers is on a machine of its own."""
        with standalone(workers=workers) as cluster:
            for pid in cluster.worker_processes():
                self.bound(pid)
            yield cluster


class _Change:
    """Kills a worker when a third of the messages is read, and has another one join soon after."""

    def __init__(self, cluster: Cluster, count: int, bound: Callable[[int], None]) -> None:
        self._cluster, self._count, self._bound = cluster, count, bound
        self.killed_at = self.joined_at = 0  #: messages that were read by then

    def __call__(self, read: int) -> None:
        """Hear how many messages are read."""
        if not self.killed_at and read >= self._count / 3:
            self._cluster.kill_worker(0)
            self.killed_at = read
        elif self.killed_at and not self.joined_at:
            self._cluster.add_worker()
            self._bound(self._cluster.worker_processes()[-1])
            self.joined_at = read


def _write(path: Path, count: int) -> None:
    city, size = CityStream(seed=1, sensors=SENSORS), 10_000
    with path.open("wb") as file:
        for first in range(0, count, size):
            file.writelines(line + b"\n" for line in generated(city, first, min(size, count - first)).bytes_list())


def _records(table: Path) -> list[tuple[Any, ...]]:
    """Return the results of a run in an order that does not depend on which bucket was first."""
    import pyarrow.dataset

    columns = pyarrow.dataset.dataset(table, format="parquet").to_table()
    return sorted(zip(*(columns[name].to_pylist() for name in sorted(columns.column_names)), strict=True), key=repr)


def _run(
    master: str,
    flow: str,
    path: Path,
    out: Path,
    buckets: int,
    place: Callable[[int], None] = lambda pid: None,
    hear: Callable[[int], None] = lambda read: None,
    keepers: Sequence[int] = (),
) -> Told:
    """Run the flow in a process of its own, put where `place` has it, and let somebody hear how far it has come."""
    command = [
        sys.executable,
        "-m",
        "headwater_bench.experiments.cluster",
        master,
        flow,
        str(path),
        str(out),
        str(buckets),
    ]
    told: Told = []
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        place(process.pid)
        processors = Processors(process.pid, keepers)
        timer = threading.Timer(_PATIENCE_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                told.append((*json.loads(line), processors.look()))
                hear(told[-1][1])
            process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            said.seek(0)
            raise RunError(f"{flow} on {master} {ending(process.returncode)}: {said.read().strip()[-500:]}")
    return told


class _Measured(NamedTuple):
    """What a run told behind its first third: messages/s, and processor microseconds for a message by who took them."""

    rate: float
    processor_us: dict[str, float]


def _measured(told: Told, count: int) -> _Measured:
    """Measure a run; its rate is 0 where all came at once."""
    begun_s, begun, before = next(each for each in told if each[1] >= count / 3)
    ended_s, ended, after = next(each for each in told if each[1] >= count)
    if ended == begun:
        return _Measured(0.0, dict.fromkeys(after, 0.0))
    spent_us = {kind: 1e6 * (after[kind] - before[kind]) / (ended - begun) for kind in after}
    return _Measured((ended - begun) / (ended_s - begun_s), spent_us)


def _medians(tried: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: round(statistics.median(each[kind] for each in tried), 1) for kind in tried[0]}


def _ratio(one: float, other: float) -> float:
    return one / other if other else 0.0


def table(answer: dict[str, Any]) -> str:
    """Show what was measured, in words."""
    rates, equal, cores = answer["rates"], answer["equal"], answer["cores_of_a_machine"]
    machine = "unbounded: no control groups here" if cores is None else f"each machine with {cores} cores of this one"
    spent = answer["processor_us"]
    names = {"local": "local[1]", "one worker": "one worker", "cluster": "two workers"}
    return "\n".join(
        [
            f"{answer['flow'].upper()} over {answer['messages']:,} messages ({answer['machine']}; {machine}): "
            f"{rates['local']:,}/s on local[1], {rates['one worker']:,}/s on one worker, {rates['cluster']:,}/s on two: "
            f"{answer['over_local']} times local[1], {answer['over_one_worker']} times one worker",
            "processor time for a message, µs",
            "  " + " " * 12 + "".join(f"{kind:>20s}" for kind in (*KINDS, "all")),
            *(
                f"  {names[form]:12s}"
                + "".join(f"{told[kind]:20.1f}" for kind in KINDS)
                + f"{sum(told.values()):20.1f}"
                for form, told in spent.items()
            ),
            f"the same results: {'yes' if equal['cluster'] and equal['one worker'] else 'NO'}; with a worker killed after "
            f"{answer['killed_at']:,} messages and one that joined after {answer['joined_at']:,}, on "
            f"{answer['executors']} executors in all: {'yes' if equal['changed'] else 'NO'}",
        ]
    )


def _main(master: str, flow: str, path: Path, out: Path, buckets: int) -> None:
    """Run the flow here, and print now and then how far it has come."""
    from headwater import spark

    sizes = Sizes(2, batch_bytes=max(1, path.stat().st_size // _BATCHES))
    running = spark.start(FLOWS[flow](path, out), master=master, sizes=sizes, buckets=buckets)
    over = None
    while over is None:
        over = running.wait(_TOLD_S)
        print(json.dumps([time.monotonic(), running.sample().records_in]), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
