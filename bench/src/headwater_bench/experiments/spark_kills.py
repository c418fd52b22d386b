"""Experiment `spark-kills`: Kafka → ETL → Kafka and a Delta table on Spark, killed with SIGKILL at random moments.

Messages come to a topic without a break. A driver runs ETL over them on a standalone cluster, with a checkpoint: results
go to another topic, rows to a Delta table. Killed are, by chance: the driver, its Java, both at once, an executor, a Python
process of one. A driver that is gone is started once more, with the same checkpoint. When there were enough kills, no more
messages come, a last run takes what is left, and all is held against the same flow on the engine: `lost` is what a sink
lacks, `twice` what it has too often. Where a sink promises less than exactly once, `twice` is what that allows.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater import Flow, engine, io
from headwater.errors import RunError
from headwater.io.delta.log import DeltaTable, Folder
from headwater.processes import children, family, kill
from headwater.spark.cluster import Cluster, standalone
from headwater.spark.sinks import guarantee
from headwater.spark.sources.kafka import PACKAGES
from headwater_bench.experiments.rows import case_table
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages as generated
from headwater_bench.riot.sources import MESSAGES
from headwater_bench.servers import kafka
from headwater_bench.servers.topics import in_topic, make_topic

KILLS, QUICK = 24, 5
LOCAL = "local[2,4]"  #: where a task may fail, as on a cluster
RATE = 200  #: messages a second
WHO = ("driver", "Java of the driver", "driver and Java", "executor", "Python of an executor")
_IN, _OUT = "messages", "results"
_PARTITIONS = 3
_EARLY = 0.2  #: of all kills come while a driver starts, at any moment
_START_S, _WORK_S = 8.0, 3.0  #: within which a kill comes after the start of a driver, and after it has come on
_LOOK_S = 0.02
_PATIENCE_S = 900.0
_SEEN_S = 30.0

Rows = Counter[tuple[str, ...]]


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    kills: int | None = None,
    seed: int | None = None,
    connector: bool = False,
) -> dict[str, Any]:
    """Kill, go on, and count; with `connector` Spark's own writes to Kafka, which has no transactions.

    To be quick, there is no cluster: executors are in the driver's own Java.
    """
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-kills-") as name:
        folder = Path(name)
        with kafka.broker(folder) as brokers, nullcontext() if quick else standalone(workers=2) as cluster:
            master = LOCAL if cluster is None else cluster.url
            for topic in (_IN, _OUT):
                make_topic(brokers, topic, _PARTITIONS)
            job = Job(brokers, folder, connector)
            with Feed(brokers, folder / "messages.jsonl") as feed:
                killing = Killing(job, master, cluster, random.Random(seed or 1))
                killing.kill(kills or (QUICK if quick else KILLS))
            job.run_to_the_end(master)
            whole = _undisturbed(folder)
            outputs = {"kafka": _in_kafka(brokers, whole["kafka"]), "delta": _in_delta(folder / "table")}
        answer: dict[str, Any] = {
            "kills": killing.kills.total(),
            "killed": dict(killing.kills),
            "drivers": job.started,
            "messages": feed.sent,
            "results": whole["kafka"].total(),
            **_sums({sink: _verdict(job, sink, outputs[sink], whole[sink]) for sink in outputs}),
            "seed": seed or 1,
            "seconds": round(time.monotonic() - began_s, 1),
        }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "spark-kills.json").write_text(json.dumps(answer, indent=1))
    if answer["lost"] or any(each["twice"] for each in answer["sinks"].values() if each["holds"] == "exactly once"):
        raise AssertionError(f"records are not where they belong: {answer}")
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer as text."""
    return case_table(answer, "sinks")


# -- the flow, in a process of its own ------------------------------------------------------------------------------------


def flow_of(brokers: str, folder: Path, connector: bool) -> Flow:
    """Describe what is killed: ETL from a topic to a topic and a Delta table."""
    java_only = {"kafka.max.request.size": "1048576"} if connector else None
    return etl(
        io.Kafka(brokers, _IN, MESSAGES),
        publish=io.Kafka(brokers, _OUT, options=java_only),
        insert=io.SparkTable(str(folder / "table"), form="delta"),
    )


class Job:
    """The driver's process: started, and started once more."""

    def __init__(self, brokers: str, folder: Path, connector: bool) -> None:
        self._given = (brokers, str(folder), "connector" if connector else "")
        self.folder, self.started = folder, 0
        self.flow = flow_of(brokers, folder, connector)

    def start(self, master: str, *, to_the_end: bool = False) -> subprocess.Popen[bytes]:
        """Start one, in a session of its own."""
        self.started += 1
        command = [sys.executable, "-m", __name__, master, *self._given, "to the end" if to_the_end else ""]
        with (self.folder / "said").open("wb") as file:
            return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)

    def run_to_the_end(self, master: str) -> None:
        """Take what is left of the messages."""
        process = self.start(master, to_the_end=True)
        try:
            if process.wait(_PATIENCE_S):
                raise RunError(f"the last run went wrong: {self.said()}")
        finally:
            end(process)

    def committed(self) -> int:
        """Return the last micro-batch that Spark knows to be done, -1 before the first."""
        commits = self.folder.glob("checkpoint/query/commits/[0-9]*")
        return max((int(path.name) for path in commits), default=-1)

    def said(self) -> str:
        """Return what the last one has said in the end."""
        return (self.folder / "said").read_text(errors="replace").strip()[-1000:]


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill all that is left of a driver, and wait until it is gone: the next must find the checkpoint free."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _await(lambda: not _lives(process.pid), "Java outlived its driver")


def _main(master: str, brokers: str, folder: str, connector: str, to_the_end: str) -> None:
    from headwater import spark

    jars = ",".join(str(kafka.JARS / "{1}-{2}.jar".format(*package.split(":"))) for package in PACKAGES)
    flow = flow_of(brokers, Path(folder), bool(connector))
    checkpoint = Path(folder) / "checkpoint"
    spark.run(flow, master=master, checkpoint=checkpoint, settings={"spark.jars": jars}, available_now=bool(to_the_end))


# -- messages -------------------------------------------------------------------------------------------------------------


class Feed:
    """Sends messages at a rate while the context lasts, and writes them to a file too."""

    def __init__(self, brokers: str, path: Path) -> None:
        self._brokers, self._path, self._over = brokers, path, threading.Event()
        self.sent = 0

    def __enter__(self) -> Feed:
        self._thread = threading.Thread(target=self._send, name="feed", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        from confluent_kafka import Producer

        city, began_s = CityStream(seed=1, sensors=90), time.monotonic()
        producer = Producer({"bootstrap.servers": self._brokers, "enable.idempotence": True, "log_level": 3})
        with self._path.open("wb") as file:
            while not self._over.wait(0.1):
                due = int((time.monotonic() - began_s) * RATE)
                if due > self.sent:
                    self._send_some(producer, file, city, due)
        producer.flush(_PATIENCE_S)

    def _send_some(self, producer: Any, file: Any, city: CityStream, due: int) -> None:
        for number, text in enumerate(generated(city, self.sent, due - self.sent).tolist(), start=self.sent):
            value = json.dumps({"msg": number, "message": text}).encode()
            sensor = json.loads(text)["e"][0]["sv"]  # whose messages have to stay in order
            producer.produce(_IN, value, sensor)
            file.write(value + b"\n")
        self.sent = due
        producer.poll(0)


# -- kills ----------------------------------------------------------------------------------------------------------------


@dataclass
class Killing:
    """Kills whoever chance says, when chance says."""

    job: Job
    master: str
    cluster: Cluster | None  #: None where all is in the driver's own Java
    chance: random.Random
    kills: Counter[str] = field(default_factory=Counter)

    def kill(self, kills: int) -> None:
        """Kill so often; whoever is gone is there again before the next, unless that comes early."""
        process = self.job.start(self.master)
        try:
            while self.kills.total() < kills:
                self._wait_for_the_moment(process)
                who = self.chance.choice(WHO)
                victims = self._processes_of(who, process)
                if not victims:
                    continue  # an executor may have none at the moment, and a driver no Java yet
                kill(victims)
                self.kills[who] += 1
                if who in WHO[:3] or process.poll() is not None:
                    self._await_end(process)
                    process = self.job.start(self.master)
        finally:
            end(process)

    def _wait_for_the_moment(self, process: subprocess.Popen[bytes]) -> None:
        if self.chance.random() < _EARLY:
            time.sleep(self.chance.uniform(0, _START_S))
            return
        before = self.job.committed()

        def has_come_on() -> bool:
            if process.poll() is not None:
                raise RunError(f"a driver ended by itself: {self.job.said()}")
            return self.job.committed() > before

        _await(has_come_on, f"no micro-batch is done: {self.job.said()}")
        time.sleep(self.chance.uniform(0, _WORK_S))

    def _processes_of(self, who: str, process: subprocess.Popen[bytes]) -> list[int]:
        """Return the processes to kill, one or, of a driver and Java, both."""
        java = [pid for pid in family(process.pid) if _program(pid) == "java"]
        if who == WHO[0]:
            return [process.pid]
        if who in WHO[1:3]:
            return java and [process.pid, *java] if who == WHO[2] else java
        executors = [] if self.cluster is None else self.cluster.executor_processes()
        if who == WHO[4]:  # one that was forked, below the one that forks, which a driver has made of its fork server
            parents = children(process.pid) if self.cluster is None else executors
            executors = [pid for each in parents for daemon in children(each) for pid in children(daemon)]
        return [self.chance.choice(executors)] if executors else []

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a driver and its Java are gone, by themselves: who loses the other has to end."""
        _await(lambda: process.poll() is not None, "a driver outlived its Java")
        _await(lambda: not _lives(process.pid), "Java outlived its driver")


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _await(is_so: Callable[[], bool], otherwise: str) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > until_s:
            raise RunError(otherwise)
        time.sleep(_LOOK_S)


# -- what is there in the end ---------------------------------------------------------------------------------------------


def _undisturbed(folder: Path) -> dict[str, Rows]:
    """Return what sinks hold after the same flow on the engine, over the same messages."""
    source = io.JsonLines(folder / "messages.jsonl", MESSAGES)
    results, rows = folder / "results.jsonl", folder / "rows"
    engine.run(etl(source, publish=io.JsonLines(results), insert=io.ParquetTable(rows)))
    return {"kafka": _results(results.read_bytes().splitlines()), "delta": _in_files(rows)}


def _in_kafka(brokers: str, whole: Rows) -> Rows:
    """Return what the topic holds; a broker says that it commits, and lets readers see it a moment later."""
    until_s = time.monotonic() + _SEEN_S
    while (rows := _results(in_topic(brokers, _OUT))).total() < whole.total() and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return rows


def _results(lines: Iterable[bytes]) -> Rows:
    records = map(json.loads, lines)
    return Counter((str(record["msg"]), record["senml"]) for record in records)


def _in_delta(folder: Path) -> Rows:
    """Return what the table holds by its log, as any reader of Delta's finds it."""
    return _in_files([str(folder / name) for name in DeltaTable(Folder(folder)).files])


def _in_files(files: Any) -> Rows:
    import pyarrow.dataset as ds

    rows = ds.dataset(files, format="parquet").to_table().to_pylist()
    return Counter(tuple(repr(row[name]) for name in sorted(row)) for row in rows)


def _verdict(job: Job, sink: str, rows: Rows, whole: Rows) -> dict[str, Any]:
    step = job.flow.steps["publish" if sink == "kafka" else "insert"]
    return {"holds": guarantee(step), "lost": (whole - rows).total(), "twice": (rows - whole).total()}


def _sums(sinks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    faults = {name: sum(verdict[name] for verdict in sinks.values()) for name in ("lost", "twice")}
    return {**faults, "sinks": sinks}


if __name__ == "__main__":
    _main(*sys.argv[1:])
