"""A flow on a standalone cluster of this machine beside `local[1]`; a worker that is killed, and one that joins.

A cluster is several machines, and this is one. So each machine that is played has a share of this one and no more, by a
control group: the one of `local[1]`, on which Java and Python share what it has, and those of the workers of one core each.
What is left is the drivers' and the masters'. Where no groups can be made nothing is bounded, and that is told.

A stream runs for months, and Java compiles for its first minutes. So three streams run side by side, each with a
checkpoint: on `local[1]`, on one worker and on two. They take laps of messages in turn, and wait while another has its lap.
The first lap tells what a cold stream does, some more are for Java to compile what runs often, and those after them count. A
lap's rate is that behind its first micro-batch. In a last lap one of the two workers is killed when a third of it is read,
and a third one joins. Results, which tasks write into a table, are compared with those of `local[1]`. Keys are in as
many buckets as there are cores in all.

Beside rates stands the processor time of a message, by who took it. Where `local[1]` has one Java, a cluster has one for
each executor and one that only plans: what those take more is Spark's own.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headwater.cores import whole_cores
from headwater.data.column import Array, Column, Text, parts
from headwater.data.hashing import partition_hash
from headwater.deploy.local.quota import Quotas
from headwater.errors import RunError, listed, suggestion
from headwater.io.arrow import batch_of, schema_of
from headwater.rate import cgroups
from headwater.spark.cluster import Cluster, standalone
from headwater_bench.experiments.cluster_stream import FLOWS, Mark, Stream
from headwater_bench.experiments.processors import KINDS
from headwater_bench.experiments.rows import write_rows
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.generate import messages as generated

FLOW = "stats"
MESSAGES, QUICK = 260_000, 12_000  #: of a lap
WARM_UP, QUICK_WARM_UP = 2, 1  #: laps between the first one and those that count
REPEATS = 3
SHARE = 0.3  #: of this machine's cores that each machine which is played has; the rest is the drivers' and the masters'
SENSORS = 2_700
_BATCHES = 2  #: micro-batches of a lap, each of 48 MB: a stream that is behind reads 64 at once unless told
#: streams, by how many workers each has; none is `local[1]`
FORMS = {"local": 0, "one worker": 1, "cluster": 2}


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flow: str = FLOW,
    messages: int | None = None,
    repeats: int | None = None,
) -> dict[str, Any]:
    """Compare; `messages` are those of one lap, and `repeats` the laps that count."""
    if flow not in FLOWS:
        raise RunError(f"there is no flow {flow!r} to measure; known are {listed(FLOWS)}{suggestion(flow, FLOWS)}")
    count, times = messages or (QUICK if quick else MESSAGES), repeats or (1 if quick else REPEATS)
    warm_up = QUICK_WARM_UP if quick else WARM_UP
    laps: dict[str, list[_Lap]] = {form: [] for form in FORMS}
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name, _Machines() as machines, ExitStack() as stack:
        folder = Path(name)
        path = folder / "messages.txt"
        ends = _write(path, count, 1 + warm_up + times + 1)
        size = 1 + max(end - begin for begin, end in zip([0, *ends], ends, strict=False)) // _BATCHES
        streams: dict[str, Stream] = {}
        for form, workers in FORMS.items():
            cluster = stack.enter_context(machines.cluster(workers)) if workers else None
            streams[form] = stack.enter_context(
                Stream(
                    "local[1]" if cluster is None else cluster.url,
                    flow,
                    path,
                    folder / form,
                    buckets=max(1, workers),
                    batch_bytes=size,
                    place=machines.bound if cluster is None else _anywhere,
                    keepers=() if cluster is None else cluster.keepers(),
                )
            )
            laps[form].append(_lap(streams[form].lap(ends[0], count)))
        for lap in range(1, 1 + warm_up + times):
            for form, stream in streams.items():
                laps[form].append(_lap(stream.lap(ends[lap], (lap + 1) * count)))
        assert cluster is not None  # that of two workers, which is the last
        change = _Change(cluster, len(ends) * count - count, count, machines.bound)
        took: dict[str, list[dict[str, int]]] = {}
        for form, stream in streams.items():
            stream.lap(ends[-1], len(ends) * count, change if form == "cluster" else _unheard)
            took[form] = stream.finish()[(1 + warm_up) * _BATCHES : -_BATCHES]
        executors = cluster.executors()
        expected = _records(streams["local"].table)
        equal = {form: np.array_equal(_records(stream.table), expected) for form, stream in streams.items()}
    warm = {form: each[1 + warm_up :] for form, each in laps.items()}
    answer: dict[str, Any] = {
        "flow": flow,
        "messages": count,
        "messages_of_a_stream": len(ends) * count,
        "results": len(expected),
        **_compared(warm),
        "cold": _compared({form: each[:1] for form, each in laps.items()}),
        "rates_by_lap": {form: [round(lap.rate) for lap in each] for form, each in laps.items()},
        "processor_us_by_lap": {
            form: [round(sum(lap.processor_us.values()), 1) for lap in each] for form, each in laps.items()
        },
        "batch_ms": {form: _batch_ms(each) for form, each in took.items()},
        "laps": {"cold": 1, "warm_up": warm_up, "warm": times},
        "cores_of_a_machine": machines.cores,
        "equal": {form: same for form, same in equal.items() if form != "local"},
        "changed_at": change.changed_at,
        "executors": executors,
        "machine": f"{platform.machine()}, {whole_cores()} cores",
        "repeats": times,
    }
    if output is not None:
        rows = [
            {"form": form, "lap": lap, "messages_per_s": round(each.rate), **each.processor_us}
            for form, made in laps.items()
            for lap, each in enumerate(made)
        ]
        write_rows(rows, output / "cluster.csv")
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
    """Kills a worker when a third of a lap is read, and has another one join amid the micro-batch that is under way."""

    def __init__(self, cluster: Cluster, before: int, count: int, bound: Callable[[int], None]) -> None:
        self._cluster, self._due, self._bound = cluster, before + count / 3, bound
        self.changed_at = 0  #: messages that were read by then

    def __call__(self, read: int) -> None:
        """Hear how many messages are read."""
        if not self.changed_at and read >= self._due:
            self._cluster.kill_worker(0)
            self._cluster.add_worker()
            self._bound(self._cluster.worker_processes()[-1])
            self.changed_at = read


def _write(path: Path, count: int, laps: int) -> list[int]:
    """Write the messages of all laps, and return the bytes at which these end."""
    city, size, ends = CityStream(seed=1, sensors=SENSORS), 10_000, []
    with path.open("wb") as file:
        for lap in range(laps):
            for first in range(lap * count, (lap + 1) * count, size):
                lines = generated(city, first, min(size, (lap + 1) * count - first)).bytes_list()
                file.writelines(line + b"\n" for line in lines)
            ends.append(file.tell())
    return ends


def _records(table: Path) -> Array:
    """Return a number of 63 bits for each result, in an order that does not depend on which bucket was first."""
    import pyarrow.dataset

    found = [np.zeros(0, np.int64)]
    for piece in pyarrow.dataset.dataset(table, format="parquet").to_batches():
        schema = schema_of(piece.schema)
        batch = batch_of(piece, schema)
        found.append(partition_hash([part for name in sorted(schema) for part in _both(batch[name])]))
    return np.sort(np.concatenate(found))


def _both(column: Column) -> tuple[Array | Text, Array]:
    """Return the values of a column and which are there; those of Arrow's that are not are 0, or empty."""
    values, valid = parts(column)
    return values, np.ones(len(column), np.bool_) if valid is None else valid


class _Lap(NamedTuple):
    """What a lap told behind its first micro-batch: messages/s, and processor µs for a message by who took them."""

    rate: float
    processor_us: dict[str, float]


def _lap(marks: Sequence[Mark]) -> _Lap:
    """Measure a lap; its rate is 0 where all came at once."""
    first, last = marks[0], marks[-1]
    count = last.read - first.read
    if not count:
        return _Lap(0.0, dict.fromkeys(last.used_s, 0.0))
    spent_us = {kind: round(1e6 * (last.used_s[kind] - first.used_s[kind]) / count, 1) for kind in last.used_s}
    return _Lap(count / (last.at_s - first.at_s), spent_us)


def _compared(laps: Mapping[str, Sequence[_Lap]]) -> dict[str, Any]:
    """Compare streams by laps that they had in turn: ratios of each turn, their median and between which they lie."""
    rates = {form: [lap.rate for lap in each] for form, each in laps.items()}
    over = {form: list(map(_ratio, rates["cluster"], rates[form])) for form in ("local", "one worker")}
    return {
        "rates": {form: round(statistics.median(each)) for form, each in rates.items()},
        "over_local": round(statistics.median(over["local"]), 2),
        "over_one_worker": round(statistics.median(over["one worker"]), 2),
        "spread": {form: [round(min(each), 2), round(max(each), 2)] for form, each in over.items()},
        "processor_us": {form: _medians([lap.processor_us for lap in each]) for form, each in laps.items()},
    }


def _batch_ms(took: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return how long warm micro-batches took in the median, and of that what was between tasks and planned for them."""
    whole = [each["triggerExecution"] for each in took]
    rest = [each["triggerExecution"] - each["addBatch"] for each in took]
    return {"all": round(statistics.median(whole)), "without_tasks": round(statistics.median(rest))}


def _medians(tried: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: round(statistics.median(each[kind] for each in tried), 1) for kind in tried[0]}


def _ratio(one: float, other: float) -> float:
    return one / other if other else 0.0


def _anywhere(pid: int) -> None:
    """Leave a process where it is."""


def _unheard(read: int) -> None:
    """Do nothing about how far a stream has come."""


def table(answer: dict[str, Any]) -> str:
    """Show what was measured, in words."""
    equal, cores, cold, laps = answer["equal"], answer["cores_of_a_machine"], answer["cold"], answer["laps"]
    machine = "unbounded: no control groups here" if cores is None else f"each machine with {cores} cores of this one"
    names = {"local": "local[1]", "one worker": "one worker", "cluster": "two workers"}
    return "\n".join(
        [
            f"{answer['flow'].upper()}, streams of {answer['messages_of_a_stream']:,} messages in laps of "
            f"{answer['messages']:,} ({answer['machine']}; {machine})",
            f"warm, {laps['warm']} laps behind {1 + laps['warm_up']}: {_rates(answer)}",
            f"cold, the first lap: {_rates(cold)}",
            "processor time for a message, µs",
            "  " + " " * 17 + "".join(f"{kind:>20s}" for kind in (*KINDS, "all")),
            *(
                f"  {names[form]:12s}{when:5s}"
                + "".join(f"{told[kind]:20.1f}" for kind in KINDS)
                + f"{sum(told.values()):20.1f}"
                for when, each in (("warm", answer), ("cold", cold))
                for form, told in each["processor_us"].items()
            ),
            "a warm micro-batch in the median, and of it what Spark does before and after its tasks, ms: "
            + ", ".join(f"{names[form]} {ms['all']}, {ms['without_tasks']}" for form, ms in answer["batch_ms"].items()),
            f"the same results on one worker: {_yes(equal['one worker'])}; on two, with a worker killed after "
            f"{answer['changed_at']:,} messages and one that joined at once, on {answer['executors']} executors in all: "
            f"{_yes(equal['cluster'])}",
        ]
    )


def _rates(told: Mapping[str, Any]) -> str:
    rates, spread = told["rates"], told["spread"]
    over = {
        form: f"{told[key]} times ({spread[form][0]} to {spread[form][1]})"
        for form, key in (("local", "over_local"), ("one worker", "over_one_worker"))
    }
    return (
        f"{rates['cluster']:,}/s on two workers, {over['local']} local[1] ({rates['local']:,}/s), "
        f"{over['one worker']} one worker ({rates['one worker']:,}/s)"
    )


def _yes(said: bool) -> str:
    return "yes" if said else "NO"
