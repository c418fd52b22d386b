"""A standalone cluster on this machine: a master and workers as processes of their own, on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

from headwater.errors import RunError
from headwater.processes import children, family, kill, wait_or_kill
from headwater.spark import java

_HOST = "127.0.0.1"
_PATIENCE_S = 120.0


class Cluster:
    """A cluster that runs, and to which workers come and from which they go."""

    def __init__(self, folder: Path, stack: ExitStack, cores: int, memory: str) -> None:
        """Start its master; all its processes end with the stack."""
        port, self._page = _free_port(), _free_port()
        self.url = f"spark://{_HOST}:{port}"  #: what `--master` takes
        self.folder = folder  #: where executors work, and what all its processes say
        self._stack, self._cores, self._memory = stack, cores, memory
        self._workers: dict[
            int, subprocess.Popen[bytes]
        ] = {}  #: those that live, by their place in the order of coming
        self._came = 0
        master = ["master.Master", "--host", _HOST, "--port", str(port), "--webui-port", str(self._page)]
        self._master = stack.enter_context(_process(folder, "master", master))
        self._await(0)

    def add_worker(self, count: int = 1) -> None:
        """Start workers, and wait until the master knows them."""
        for _ in range(count):
            offers = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(self.folder)]
            command = ["worker.Worker", self.url, "--host", _HOST, *offers, "--webui-port", "0"]
            worker = _process(self.folder, f"worker-{self._came}", command)
            self._workers[self._came] = self._stack.enter_context(worker)
            self._came += 1
        self._await(len(self._workers))

    def kill_worker(self, number: int) -> None:
        """Kill a worker, by its place in the order of coming, with its executors and all that they have started."""
        worker = self._workers.pop(number)
        kill(family(worker.pid))
        worker.wait()
        self._await(len(self._workers))

    def worker_processes(self) -> list[int]:
        """Return the processes of the workers that live, in the order of coming."""
        return [worker.pid for worker in self._workers.values()]

    def keepers(self) -> list[int]:
        """Return the processes of the master and of the workers, which run no tasks themselves."""
        return [self._master.pid, *self.worker_processes()]

    def executors(self) -> int:
        """Return how many executors its workers have started so far."""
        return sum(path.is_dir() for path in self.folder.glob("app-*/*"))

    def executor_processes(self) -> list[int]:
        """Return the processes of the executors that run, which a worker starts again where they are killed."""
        return [pid for worker in self._workers.values() for pid in children(worker.pid)]

    def _await(self, workers: int) -> None:
        """Wait until the master knows so many workers to be there; raise what they said if one ends instead."""
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            if any(process.poll() is not None for process in (self._master, *self._workers.values())):
                text = "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))
                raise RunError(f"a process of the Spark cluster ended at once: {text.strip()[-300:]}")
            try:
                with urlopen(f"http://{_HOST}:{self._page}/json/", timeout=5) as answer:
                    if json.load(answer)["aliveworkers"] == workers:
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise RunError(f"the Spark cluster at {self.url} was not ready within {_PATIENCE_S:.0f} s")


@contextmanager
def standalone(workers: int = 1, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """Run a master and workers while the context lasts; each worker offers so many cores and so much memory."""
    with tempfile.TemporaryDirectory(prefix="headwater-cluster-") as folder, ExitStack() as stack:
        cluster = Cluster(Path(folder), stack, cores, memory)
        cluster.add_worker(workers)
        yield cluster


@contextmanager
def _process(folder: Path, name: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    from pyspark.find_spark_home import _find_spark_home

    environment = os.environ | {
        "JAVA_HOME": str(java.find().home),
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    starter = Path(_find_spark_home()) / "bin" / "spark-class"
    package, *options = command
    with (folder / f"{name}.log").open("wb") as file:
        process = subprocess.Popen(
            [starter, f"org.apache.spark.deploy.{package}", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield process
    finally:
        process.terminate()
        wait_or_kill(process, 20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
