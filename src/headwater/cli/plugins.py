"""What other packages add to the command line, found by their entry points.

A package that has any says so in its `pyproject.toml`: under `headwater.commands` a Typer application or a function, under
`headwater.flows` a `Bundle` of ready-made flows (`riot:etl` is flow etl of bundle riot), under `headwater.problems` a
function that reads placement problems of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import FlowError, RunError, listed, suggestion

if TYPE_CHECKING:
    from headwater.flow import Flow
    from headwater.metrics import Report

COMMANDS, FLOWS, PROBLEMS = "headwater.commands", "headwater.flows", "headwater.problems"

#: what our own second package adds, so that a user who lacks it is told what to install
BENCH = "headwater-bench"
BENCH_COMMANDS = {
    "bench": "Run a named experiment: it checks its own answer, interleaves what it compares and reports ratios.",
    "demo": "Play a city of sensors.",
}
BENCH_FLOWS = ("riot",)


@dataclass(frozen=True)
class Job:
    """What a bundled flow does on Spark in place of being run there step by step."""

    about: str  #: for `headwater show --on spark`
    run: Callable[[list[str] | None, Path | None, str | None, Mapping[str, Any]], Report]
    show: Callable[[Report, bool], None]


@dataclass(frozen=True)
class Bundle:
    """Ready-made flows by name."""

    names: tuple[str, ...]
    find: Callable[[str], Flow]
    spark_jobs: Mapping[str, Job] = field(default_factory=dict)


def commands() -> dict[str, EntryPoint]:
    """Return the commands that installed packages add, by name, not yet loaded."""
    return {point.name: point for point in entry_points(group=COMMANDS)}


def bundles() -> list[str]:
    """Return the names of the installed bundles."""
    return sorted(point.name for point in entry_points(group=FLOWS))


def bundle(name: str) -> Bundle | None:
    """Return a bundle of flows, or None if no package has one of that name."""
    points = [point for point in entry_points(group=FLOWS) if point.name == name]
    if not points:
        if name in BENCH_FLOWS:
            raise FlowError(f"the flows {name}:… come with {BENCH}: pip install {BENCH}")
        return None
    loaded: Bundle = points[0].load()
    return loaded


def bundled_flow(flows: Bundle, prefix: str, short: str) -> Flow:
    """Return a flow of a bundle."""
    if short not in flows.names:
        names = [f"{prefix}:{each}" for each in flows.names]
        name = f"{prefix}:{short}"
        raise FlowError(f"there is no bundled flow {name!r}; bundled are {listed(names)}{suggestion(name, names)}")
    return flows.find(short)


def spark_job(flow: str) -> Job | None:
    """Return what a flow named on the command line does on Spark in place of being run there, if anything."""
    prefix, _, short = flow.rpartition(":")
    if prefix not in bundles():
        return None
    flows = bundle(prefix)
    return None if flows is None else flows.spark_jobs.get(short)


def problem_reader() -> Callable[..., Any]:
    """Return what reads placement problems of a file."""
    for point in entry_points(group=PROBLEMS):
        reader: Callable[..., Any] = point.load()
        return reader
    raise RunError(f"--problem reads files of the CEP paper's dataflows, which comes with {BENCH}: pip install {BENCH}")
