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
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from headwater.errors import RunError
from headwater.spark import java

_HOST = "127.0.0.1"
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that runs."""

    url: str  #: what `--master` takes
    folder: Path  #: where executors work, and what all its processes say


@contextmanager
def standalone(workers: int = 1, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """Run a master and workers while the context lasts; each worker offers so many cores and so much memory."""
    port, page = _free_port(), _free_port()
    url = f"spark://{_HOST}:{port}"
    with tempfile.TemporaryDirectory(prefix="headwater-cluster-") as folder, ExitStack() as stack:
        cluster = Cluster(url, Path(folder))
        master = ["master.Master", "--host", _HOST, "--port", str(port), "--webui-port", str(page)]
        running = [stack.enter_context(_process(cluster, "master", master))]
        _await(cluster, running, page, 0)
        for number in range(workers):
            offers = ["--cores", str(cores), "--memory", memory, "--work-dir", folder, "--webui-port", "0"]
            command = ["worker.Worker", url, "--host", _HOST, *offers]
            running.append(stack.enter_context(_process(cluster, f"worker-{number}", command)))
        _await(cluster, running, page, workers)
        yield cluster


@contextmanager
def _process(cluster: Cluster, name: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    from pyspark.find_spark_home import _find_spark_home

    environment = os.environ | {
        "JAVA_HOME": str(java.find().home),
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    starter = Path(_find_spark_home()) / "bin" / "spark-class"
    package, *options = command
    with (cluster.folder / f"{name}.log").open("wb") as said:
        process = subprocess.Popen(
            [starter, f"org.apache.spark.deploy.{package}", *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(cluster: Cluster, running: list[subprocess.Popen[bytes]], page: int, workers: int) -> None:
    """Wait until the master knows its workers; raise what they said if they end instead."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        if any(process.poll() is not None for process in running):
            said = "\n".join(path.read_text(errors="replace") for path in sorted(cluster.folder.glob("*.log")))
            raise RunError(f"a process of the Spark cluster ended at once: {said.strip()[-300:]}")
        try:
            with urlopen(f"http://{_HOST}:{page}/json/", timeout=5) as answer:
                if json.load(answer)["aliveworkers"] >= workers:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise RunError(f"the Spark cluster at {cluster.url} was not ready within {_PATIENCE_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
