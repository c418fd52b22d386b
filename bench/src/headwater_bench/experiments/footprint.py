"""What Headwater takes: resident memory, processor time at a low rate, disk, and how long until a first result.

Each figure is the median of several processes of their own, started as a user starts them.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Any

import headwater
from headwater_bench.experiments.trial import machine

_RATE_HZ = 1000
_FAST_HZ, _FAST_S = 20_000, 3  #: more than a flow can do uncompiled

_MAIN = "from headwater.cli import main; main()"
_TRIVIAL = """
from headwater import Flow, col, engine, io
flow = Flow("tanks")
levels = flow.read("levels", io.Generate(lambda n: {"height": n % 300.0}, {"height": float}, 1000, duration="2 s"))
levels.filter("low", col.height < 150).write("alarms", io.Discard())
engine.run(flow)
"""
_FIRST = """
from headwater import engine
from headwater.data.jit import answering_at_once
from headwater_bench.experiments.footprint import LeaveAtFirst
from headwater_bench.riot.etl import etl
from headwater_bench.riot.sources import Messages
with answering_at_once():
    flow = etl(Messages("CITY", RATE), publish=LeaveAtFirst())
engine.run(flow, seconds=120)
"""


class LeaveAtFirst:
    """A sink that ends the process, as a success, with the first record that it gets."""

    def open(self, schema: Any) -> LeaveAtFirst:
        """Nothing to open."""
        return self

    def write(self, batch: Any) -> None:
        """Leave."""
        if len(batch):
            os._exit(0)

    def close(self) -> None:
        """Nothing to close."""


def run(quick: bool = False, output: Path | None = None) -> dict[str, Any]:
    """Measure everything; `quick` takes one process for each figure instead of three."""
    times = 1 if quick else 3
    run_etl = ["run", "riot:etl", "--rate", str(_RATE_HZ), "--json"]
    _wall([*run_etl, "--for", "2s"])  # what it needs is asked for
    _wait_for_cache(run_etl)
    helped = [_started([sys.executable, "-c", _MAIN, "--help"]) for _ in range(times)]
    flows = [_slow_run([*run_etl, "--for", "6s"]) for _ in range(times)]
    trivial = [_started([sys.executable, "-c", _TRIVIAL]) for _ in range(times)]
    cold = [_cold_run() for _ in range(times)]
    answer: dict[str, Any] = {
        "machine": machine(),
        "etl_mb": _median(each["mb"] for each in flows),
        "trivial_mb": _median(each["mb"] for each in trivial),
        "help_s": _median(each["seconds"] for each in helped),
        "help_mb": _median(each["mb"] for each in helped),
        "cold_first_output_s": _median(_cold_first_output_s() for _ in range(times)),
        "cold_p99_ms_at_20000": _median(each["p99_ms"] for each in cold),
        "cold_delivered_at_20000": _median(each["delivered"] for each in cold),
        "cold_run_s_at_20000": _median(each["seconds"] for each in cold),
        "cpu_at_1000": _median(each["cpu"] for each in flows),
        "p99_ms_at_1000": _median(each["p99_ms"] for each in flows),
        "install_mb": round(install_bytes("headwater") / 1e6, 1),
    }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "footprint.txt").write_text(table(answer) + "\n")
    return answer


def _median(values: Iterable[float]) -> float:
    return round(float(statistics.median(values)), 3)


def _wall(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _MAIN, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _wait_for_cache(run_etl: list[str]) -> None:
    """Run until no more files come into the cache: the compiling process outlives the run that asked it."""
    from headwater.data.jit import cache

    before, until = -1, time.monotonic() + 120
    while time.monotonic() < until and (now := len(list(cache.folder().iterdir()))) != before:
        before = now
        time.sleep(5)
        _wall([*run_etl, "--for", "1s"])


def _slow_run(arguments: list[str]) -> dict[str, float]:
    """Run ETL as a user does, at a low rate: what `_started` tells, and its p99."""
    with tempfile.TemporaryFile() as output:
        figures = _started([sys.executable, "-c", _MAIN, *arguments], watch_s=(2.0, 5.0), stdout=output)
        output.seek(0)
        return {**figures, "p99_ms": json.load(output)["latency_ms"]["p99"]}


def _started(
    command: list[str], watch_s: tuple[float, float] = (0.0, 0.0), stdout: IO[bytes] | int = subprocess.DEVNULL
) -> dict[str, float]:
    """Run a command; return its peak memory, its time and, between two moments, its share of a processor."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=stdout)
    peak, spent = 0.0, [0.0, 0.0]
    while process.poll() is None:
        peak = max(peak, _peak_mb(process.pid))
        passed = time.perf_counter() - began
        for i, moment in enumerate(watch_s):
            if passed <= moment:
                spent[i] = _processor_s(process.pid)
        time.sleep(0.005)
    if process.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {process.returncode}")
    share = (spent[1] - spent[0]) / max(watch_s[1] - watch_s[0], 1e-9)
    return {"mb": peak, "seconds": time.perf_counter() - began, "cpu": share}


def _peak_mb(pid: int) -> float:
    """Return the most that a process was resident so far; what `wait4` tells includes the process that started it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM")), 0.0)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _empty_cache() -> Iterator[str]:
    """Give a cache with nothing in it, and remove it when nobody compiles for it: that goes on where a run has ended."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        yield cache
        until = time.monotonic() + 120
        while time.monotonic() < until and any(_has_cache(each, cache) for each in Path("/proc").glob("[0-9]*")):
            time.sleep(0.05)


def _has_cache(process: Path, cache: str) -> bool:
    try:
        return f"HEADWATER_CACHE={cache}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


def _cold_first_output_s() -> float:
    """Return how long ETL takes to its first result where nothing was ever compiled."""
    with _empty_cache() as cache:
        began = time.perf_counter()
        code = _FIRST.replace("RATE", str(_RATE_HZ))
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"HEADWATER_CACHE": cache}, check=True)
        return time.perf_counter() - began


def _cold_run() -> dict[str, float]:
    """Run ETL as a user does, fast, where nothing was ever compiled: its p99, the share that came out, and its time."""
    with _empty_cache() as cache:
        arguments = ["run", "riot:etl", "--rate", str(_FAST_HZ), "--for", f"{_FAST_S}s", "--json"]
        began = time.perf_counter()
        process = subprocess.run(
            [sys.executable, "-c", _MAIN, *arguments],
            env=os.environ | {"HEADWATER_CACHE": cache},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        seconds = time.perf_counter() - began
    report = json.loads(process.stdout)
    delivered = report["records_out"]["publish"] / (_FAST_HZ * _FAST_S)
    return {"p99_ms": report["latency_ms"]["p99"], "delivered": delivered, "seconds": seconds}


def install_bytes(name: str) -> int:
    """Return what a package and all that it needs without extras takes on disk."""
    packages: dict[str, Distribution] = {}
    _gather(name, packages)
    return sum(_size(each) for each in packages.values())


def _gather(name: str, packages: dict[str, Distribution]) -> None:
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in packages:
        return
    try:
        packages[key] = distribution(name)
    except PackageNotFoundError:
        return  # for another system, or another Python
    for requirement in packages[key].requires or ():
        if "extra ==" not in requirement:
            _gather(re.split(r"[^A-Za-z0-9._-]", requirement)[0], packages)


def _size(package: Distribution) -> int:
    if package.metadata["Name"] == "headwater":  # may be installed as a link to its source
        files = Path(headwater.__path__[0]).rglob("*")
    else:
        files = (Path(str(package.locate_file(file))) for file in package.files or ())
    return sum(file.stat().st_size for file in files if file.is_file())


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    labels = {
        "etl_mb": "MB resident at most, RIoTBench ETL at 1,000 messages/s",
        "trivial_mb": "MB resident at most, one filter",
        "help_mb": "MB resident at most, headwater --help",
        "help_s": "s, headwater --help",
        "cold_first_output_s": "s from the start to the first result of ETL, where nothing was ever compiled",
        "cold_p99_ms_at_20000": "ms, p99 of ETL at 20,000 messages/s for 3 s, where nothing was ever compiled",
        "cold_delivered_at_20000": "of what was offered then came out",
        "cold_run_s_at_20000": "s for all of it, with the compiler waited for",
        "cpu_at_1000": "of a processor, ETL at 1,000 messages/s",
        "p99_ms_at_1000": "ms, p99 of that",
        "install_mb": "MB on disk, a base install without Python",
    }
    return "\n".join(f"{answer[name]:>9} {what}" for name, what in labels.items())
