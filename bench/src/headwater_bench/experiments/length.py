"""What a record costs, and how much memory there is, as a stream gets a thousand times as long.

A flow runs as fast as it can; its sink looks at processor time and memory whenever it is given a record that lies so far
into the stream. Processor time, not time on the wall: a machine that others use slows a run down but hardly makes it dearer.
"""

from __future__ import annotations

import csv
import os
import platform
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.cores import whole_cores
from headwater.data.batch import Batch
from headwater.errors import RunError, listed, suggestion
from headwater.flow import Flow, Schema
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated
from headwater_bench.riot.stats import stats

FLOWS = ("etl", "stats", "pred")
_FIRST, _STEPS_PER_DECADE = 1000, 2


@dataclass(frozen=True, slots=True)
class Mark:
    """How things stood when the results of a message came out."""

    flow: str
    message: int
    cost_us: float  #: processor time of each message since the mark before
    rss_mb: float


def run(
    quick: bool = False, output: Path | None = None, *, flows: Sequence[str] | None = None, times: int | None = None
) -> dict[str, Any]:
    """Run flows over streams `times` as long as the first thousand messages, and look on the way."""
    names = list(flows or FLOWS)
    for name in names:
        if name not in FLOWS:
            raise RunError(f"there is no flow {name!r}; known are {listed(FLOWS)}{suggestion(name, FLOWS)}")
    longer = times or (100 if quick else 1000)
    if longer < 10:
        raise RunError(f"a stream is made at least 10 times as long; got {longer}")
    marks = [mark for name in names for mark in _curve(name, _places(longer))]
    answer: dict[str, Any] = {name: _answer([mark for mark in marks if mark.flow == name]) for name in names}
    answer["machine"] = f"{platform.machine()}, {whole_cores()} cores, Python {platform.python_version()}"
    if output is not None:
        _write(marks, answer, output)
    return answer


def _places(times: int) -> list[int]:
    """Return the messages to look at: two for each power of ten, up to so many times the first.

    >>> _places(100)
    [1000, 3162, 10000, 31623, 100000]
    """
    places, at = [], float(_FIRST)
    while at < _FIRST * times * 1.01:
        places.append(round(at))
        at *= 10 ** (1 / _STEPS_PER_DECADE)
    return places


def _curve(name: str, places: Sequence[int]) -> list[Mark]:
    for _ in range(2):  # the first run compiles what is not compiled yet, the second one brings memory up to its size
        engine.run(_flow(name, 20_000, None))
    watch = Watch(places)
    report = engine.run(_flow(name, places[-1] + 1000, watch))
    if report.dead_letters or report.left or report.last.records_in != places[-1] + 1000:
        raise AssertionError(f"{name}: {report.last.records_in} in, {report.dead_letters} dead, {report.left} left")
    return [
        Mark(name, place, round(1e6 * (cpu - cpu_before) / (place - before), 4), round(rss, 1))
        for (before, cpu_before, _), (place, cpu, rss) in pairwise(watch.readings)
    ]


def _flow(name: str, count: int, publish: Watch | None) -> Flow:
    source = generated("CITY", 1e9, count=count)
    return {"etl": etl, "stats": stats, "pred": pred}[name](source, publish=publish)  # type: ignore[operator, no-any-return]


class Watch:
    """A sink that keeps nothing, but looks at the process when certain messages come by."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places, self._lock = list(places), threading.Lock()
        self.readings: list[tuple[int, float, float]] = []  #: message, processor time in s, memory in MB

    def open(self, schema: Schema) -> Watch:
        """Watch through one more writer."""
        return self

    def write(self, batch: Batch) -> None:
        """Look if the batch reaches the next place."""
        with self._lock:
            while self._places and batch["msg"][-1] >= self._places[0]:
                self.readings.append((self._places.pop(0), time.process_time(), _rss_mb()))

    def close(self) -> None:
        """Nothing to release."""


def _rss_mb() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:  # no /proc: the highest so far, which grows if memory does
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def _answer(marks: list[Mark]) -> dict[str, Any]:
    middle = marks[len(marks) // 2]
    return {
        "messages": [mark.message for mark in marks],
        "cost_us": [mark.cost_us for mark in marks],
        "rss_mb": [mark.rss_mb for mark in marks],
        "cost_end_over_middle": round(marks[-1].cost_us / middle.cost_us, 3),
        "rss_end_over_middle": round(marks[-1].rss_mb / middle.rss_mb, 3),
    }


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"processor time of a message since the mark before, and memory; {answer['machine']}"]
    for name in FLOWS:
        if name not in answer:
            continue
        flow = answer[name]
        lines.append(f"{name:6s} message   " + "".join(f"{place:>11,}" for place in flow["messages"]))
        lines.append("       µs each   " + "".join(f"{cost:>11.2f}" for cost in flow["cost_us"]))
        lines.append("       memory MB " + "".join(f"{rss:>11.1f}" for rss in flow["rss_mb"]))
        end, rss = flow["cost_end_over_middle"], flow["rss_end_over_middle"]
        lines.append(f"       at the end, beside half-way (on a scale of powers): cost × {end}, memory × {rss}")
    return "\n".join(lines)


def _write(marks: list[Mark], answer: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    with (output / "length.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, list(Mark.__slots__))
        rows.writeheader()
        rows.writerows(asdict(mark) for mark in marks)
    (output / "length.txt").write_text(table(answer) + "\n")
    from headwater_bench.experiments.plots import figure

    fig, axes = figure(1, 2, 9, 3.6)
    for name in dict.fromkeys(mark.flow for mark in marks):
        mine = [mark for mark in marks if mark.flow == name]
        places = [mark.message for mark in mine]
        axes[0][0].plot(places, [mark.cost_us for mark in mine], marker=".", label=name)
        axes[0][1].plot(places, [mark.rss_mb for mark in mine], marker=".", label=name)
    axes[0][0].set(xscale="log", xlabel="message", ylabel="processor time of a message, µs")
    axes[0][1].set(xscale="log", xlabel="message", ylabel="memory, MB")
    for axis in axes[0]:
        axis.set_ylim(0, 1.15 * axis.get_ylim()[1])
    axes[0][0].legend(fontsize=8)
    fig.savefig(output / "length.png", dpi=110)
