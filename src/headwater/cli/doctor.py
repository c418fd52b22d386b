"""`headwater doctor`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from headwater.cli.parameters import JSON
from headwater.cli.screen import console, print_json, progress
from headwater.cores import usable_cores
from headwater.errors import RateError, RunError


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried: whether it works, what was seen, and how to mend it."""

    name: str
    works: bool
    seen: str
    mend: str = ""
    needed: bool = True


def doctor(
    as_json: JSON = False,
    quick: Annotated[bool, typer.Option(help="only look, start nothing")] = False,
) -> None:
    """Say what is installed and works, and how to mend what does not."""
    with progress("looking around"):
        figures: dict[str, Any] | None = None
        checks = [_python(), *(_package(*each) for each in _PACKAGES), _compiler(), _promises(), _java()]
        if not quick:
            on_spark, figures = _spark()
            checks += [_flow(), _start_up(), *on_spark]
    failures = [check for check in checks if check.needed and not check.works]
    if as_json:
        print_json({"works": not failures, "checks": [asdict(check) for check in checks], "spark": figures})
    else:
        _print(checks)
    if failures:
        raise typer.Exit(1)


def _print(checks: list[Check]) -> None:
    table = Table(header_style="bold")
    for name in ("", "what", "seen", "to mend"):
        table.add_column(name)
    for check in checks:
        mark = Text("ok", "green") if check.works else Text("no", "red") if check.needed else Text("-", "yellow")
        table.add_row(mark, check.name, check.seen, "" if check.works else check.mend)
    console.print(table)


#: package, extra that brings it, whether a base install needs it, what it is for
_PACKAGES: tuple[tuple[str, str, bool, str], ...] = (
    ("numpy", "", True, "columns"),
    ("numba", "", True, "compiled kernels"),
    ("msgspec", "", True, "JSON and snapshots"),
    ("pyarrow", "arrow", False, "Parquet files, Spark"),
    ("pyiceberg", "iceberg", False, "Iceberg tables"),
    ("matplotlib", "plots", False, "plots"),
    ("prometheus-client", "prometheus", False, "metrics for Prometheus"),
    ("ortools", "plan", False, "exact placement"),
    ("highspy", "plan", False, "exact placement"),
    ("lark", "query", False, "the query language"),
    ("pyspark", "spark", False, "the Spark runner"),
)


def _package(name: str, extra: str, needed: bool, purpose: str) -> Check:
    mend = f"pip install 'headwater[{extra}]'" if extra else f"pip install {name}"
    try:
        return Check(f"{name} ({purpose})", True, importlib.metadata.version(name), "", needed)
    except importlib.metadata.PackageNotFoundError:
        return Check(f"{name} ({purpose})", False, "not installed", mend, needed)


def _python() -> Check:
    fits = sys.version_info >= (3, 11)
    processors, cores = len(os.sched_getaffinity(0)), usable_cores()
    limit = f", of which control groups leave {cores:g} cores" if cores < processors else ""
    text = f"{platform.python_version()}, {processors} processors{limit}, {platform.machine()}"
    return Check("Python", fits, text, "Headwater needs Python 3.11 or newer")


def _compiler() -> Check:
    from headwater.data.jit import COMPILED

    text = "kernels run compiled" if COMPILED else "kernels run as plain Python, slowly"
    return Check("compiled kernels", COMPILED, text, "pip install numba", needed=False)


def _promises() -> Check:
    """Say how well promised rates are kept here: by the supervisor at work, or by one that this user would start."""
    from headwater.rate import board
    from headwater.rate.grade import grade_here
    from headwater.rate.ledger import CLOSED, OPENS

    what = "promised rates"
    try:
        promises = board()
    except RateError as error:  # one that is stopped, and which it is
        return Check(what, False, str(error), needed=False)
    if promises is None:
        own = grade_here()
        grade: tuple[str, str, str] = own.name, own.how, own.better
    elif promises.may_ask:
        grade = promises.grade, promises.how, promises.better
    else:
        return Check(what, False, CLOSED, OPENS, needed=False)
    name, how, better = grade
    return Check(what, name == "reserved" and not better, f"grade {name}: {how}", better, needed=False)


def _java() -> Check:
    from headwater.spark.java import find

    try:
        java = find()
    except RunError as error:
        return Check("Java (for Spark)", False, "none that fits", str(error), needed=False)
    return Check("Java (for Spark)", True, f"{java.version}, {java.origin}", needed=False)


def _spark() -> tuple[list[Check], dict[str, Any] | None]:
    """Run a small flow on Spark for real, in a process of its own; return what was seen, and the figures."""
    from headwater.spark.checkup import PACKAGES, checkup, installed_mb

    if importlib.util.find_spec("pyspark") is None:
        return [], None  # which its package's own line says already
    try:
        result = checkup()
    except RunError as error:
        return [Check("a flow on Spark", False, "does not run", str(error), needed=False)], None
    first = f"Spark there after {result.session_s:.1f} s, first output after {result.first_output_s:.1f} s"
    workers = f"{result.workers} Python worker processes {result.workers_mb:.0f} MB"
    memory = f"driver {result.driver_mb:.0f} MB, Java {result.jvm_mb:.0f} MB, {workers}"
    size_mb = installed_mb()
    disk = f"{size_mb:.0f} MB ({', '.join(PACKAGES)})"
    checks = [
        Check("a flow on Spark", True, f"Spark {result.version} on Java {result.java}: {first}", needed=False),
        Check("Spark's memory", True, memory, needed=False),
        Check("Spark on disk", True, disk, needed=False),
    ]
    return checks, {**asdict(result), "installed_mb": size_mb}


def _flow() -> Check:
    """Run a small flow for real and compare what comes out."""
    from headwater.engine import run
    from headwater.flow import Flow, col
    from headwater.io import Collect, Items

    flow, out = Flow("doctor"), Collect()
    numbers = flow.read("numbers", Items([{"n": i} for i in range(1000)]))
    numbers.filter("even", col.n % 2 == 0).write("out", out)
    start = time.perf_counter()
    try:
        run(flow)
    except Exception as error:
        return Check("a flow on the engine", False, f"{type(error).__name__}: {error}", "please report this")
    right = [record["n"] for record in out.records] == list(range(0, 1000, 2))
    return Check("a flow on the engine", right, f"{(time.perf_counter() - start) * 1e3:.0f} ms", "please report this")


def _start_up() -> Check:
    """Time a fresh process from nothing to a flow's first output, and read its memory."""
    code = (
        "import time, resource; t = time.perf_counter()\n"
        "from headwater import Flow, col, engine, io\n"
        "f = Flow('start'); f.read('r', io.Items([{'x': 1.0}])).filter('f', col.x > 0).write('w', io.Discard())\n"
        "engine.run(f); print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    process: Any = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    if process.returncode:
        return Check("start-up", False, process.stderr.strip().splitlines()[-1], "please report this")
    seconds, megabytes = map(float, process.stdout.split())
    return Check("start-up", True, f"first output after {seconds * 1e3:.0f} ms, {megabytes:.0f} MB resident")
