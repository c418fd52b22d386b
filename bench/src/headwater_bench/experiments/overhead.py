"""What the engine costs: a chain of trivial steps on the engine against the same functions in one plain loop.

What measuring costs is less than the difference between two runs, in one of which batches happen to be put together more
often. So measuring is switched on and off a hundred times within a run, and spans of it that are neighbours are compared.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headwater import engine
from headwater.flow import Batch, Flow, Schema, col
from headwater.io import Discard
from headwater.operators import build
from headwater.operators.task import Task
from headwater_bench.experiments.batch_source import BatchSource

STEPS, BATCH = 10, 50
_SPAN = 1_000  #: batches between switching measurements on and off; the engine puts some forty together
_SCHEMA = Schema.of({"x": float, "y": float})


class _Last(Discard):
    """Remembers the last batch, so that the answer can be checked."""

    last: Batch | None = None

    def open(self, schema: Schema) -> _Last:
        return self

    def write(self, batch: Batch) -> None:
        self.last = batch


class _Switching(BatchSource):
    """Hands out batches and switches the measurements of the tasks that they go to on and off."""

    def __init__(self, batches: list[Batch]) -> None:
        super().__init__(batches, _SCHEMA)
        self.tasks: list[Task] = []
        self.spans: list[tuple[bool, float]] = []  #: whether it was measured, and how long it took
        self._left, self._began = _SPAN, 0.0

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next batch."""
        self._left -= 1
        if self._left == 0 and self.tasks:
            now, measured = time.perf_counter(), self.tasks[0].measure
            if self._began:
                self.spans.append((measured, now - self._began))
            for task in self.tasks:
                task.measure = not measured
            self._left, self._began = _SPAN, now
        self._left = self._left or _SPAN
        return super().read(limit, timeout_s)


def run(quick: bool = False, output: Path | None = None, *, repeats: int = 15) -> dict[str, Any]:
    """Time loop and engine in turn, and the engine with its measurements switched on and off."""
    batch = Batch.of({"x": np.arange(BATCH, dtype=float), "y": np.zeros(BATCH)}, _SCHEMA)
    batches = [batch] * (40_000 if quick else 200_000)
    repeats = 3 if quick else repeats
    _loop(batches[:100]), _engine(batches[:100])
    times: dict[str, list[float]] = {"loop": [], "engine": []}
    unmeasured: list[float] = []  #: time of a span over that of its measured neighbour
    for _ in range(repeats):
        times["loop"].append(_loop(batches))
        times["engine"].append(_engine(batches))
        unmeasured += _switched(batches)
    over_loop = [a / b for a, b in zip(times["loop"], times["engine"], strict=True)]
    records = len(batches) * BATCH
    answer = {
        "engine_over_loop": round(statistics.median(over_loop), 3),
        "engine_over_loop_spread": [round(min(over_loop), 3), round(max(over_loop), 3)],
        "metrics_cost": round(1 - statistics.median(unmeasured), 4),
        "metrics_spans": len(unmeasured),
        "records_per_s": {name: round(records / statistics.median(spent)) for name, spent in times.items()},
        "steps": STEPS,
        "batch": BATCH,
        "repeats": repeats,
        "idle_share_of_a_core": round(_idle(1.0 if quick else 5.0), 5),
        **_start_up(repeats),
    }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        rows = [f"{a:.6f},{b:.6f}" for a, b in zip(*times.values(), strict=True)]
        (output / "overhead.csv").write_text("\n".join(["loop_s,engine_s", *rows]) + "\n")
    return answer


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    rates = answer["records_per_s"]
    return (
        f"{answer['steps']} trivial steps, batches of {answer['batch']}: plain loop {rates['loop']:,} records/s, "
        f"engine {rates['engine']:,}\n"
        f"engine / loop {answer['engine_over_loop']} (spread {answer['engine_over_loop_spread']}), "
        f"measurements cost {answer['metrics_cost']:.1%}\n"
        f"an idle engine takes {answer['idle_share_of_a_core']:.2%} of a core; import and first output take "
        f"{answer['start_over_import']} times `import numpy, pyarrow`, {answer['resident_mb']} MB resident"
    )


def _flow(source: BatchSource, sink: _Last) -> Flow:
    flow = Flow("overhead")
    stream = flow.read("batches", source)
    for i in range(STEPS):
        stream = stream.with_columns(f"step {i}", x=col.x + 1)
    stream.write("sink", sink)
    return flow


def _loop(batches: list[Batch]) -> float:
    flow = _flow(BatchSource(batches, _SCHEMA), _Last())
    functions = [build(flow.steps[f"step {i}"]).process for i in range(STEPS)]
    start = time.perf_counter()
    for batch in batches:
        for function in functions:
            batch = function(batch, 0)  # type: ignore[assignment]
    spent = time.perf_counter() - start
    _check(batch)
    return spent


def _engine(batches: list[Batch]) -> float:
    sink = _Last()
    report = engine.run(_flow(BatchSource(batches, _SCHEMA), sink))
    assert sink.last is not None
    _check(sink.last)
    if report.last.records_out["sink"] != len(batches) * BATCH:
        raise AssertionError(f"the sink took {report.last.records_out['sink']} of {len(batches) * BATCH} records")
    return report.seconds


def _switched(batches: list[Batch]) -> list[float]:
    """Return how long spans without measurements took, over their neighbours with."""
    source, sink = _Switching(batches), _Last()
    running = engine.start(_flow(source, sink))
    source.tasks = running.tasks
    running.wait()
    assert sink.last is not None
    _check(sink.last)
    return [b / a if measured else a / b for (measured, a), (_, b) in pairwise(source.spans)]


def _idle(seconds: float) -> float:
    """Return the share of a core that a flow takes whose source is silent."""

    class Silent(BatchSource):
        def read(self, limit: int, timeout_s: float) -> Batch | None:
            time.sleep(timeout_s)
            return Batch.none(_SCHEMA)

    flow = _flow(Silent([], _SCHEMA), _Last())
    running = engine.start(flow)
    time.sleep(0.2)
    began, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    share = (time.process_time() - spent) / (time.perf_counter() - began)
    running.stop()
    running.wait()
    return share


_IMPORT = "import numpy, pyarrow"
_START = """
import resource
from headwater import Flow, col, engine, io
flow = Flow("start")
flow.read("r", io.Items([{"x": 1.0}])).filter("f", col.x > 0).write("w", io.Discard())
engine.run(flow)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _start_up(repeats: int) -> dict[str, float]:
    """Time fresh processes: importing and running a flow, against importing NumPy and Arrow alone."""
    ratios, resident = [], 0.0
    for _ in range(repeats):
        times = []
        for code in (_IMPORT, _START):
            start = time.perf_counter()
            output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
        resident = float(output)
    return {"start_over_import": round(statistics.median(ratios), 3), "resident_mb": round(resident, 1)}


def _check(last: Batch) -> None:
    """Raise unless the last records are right; the engine may have put several batches together, and cut them anew."""
    pattern = np.arange(BATCH) + float(STEPS)
    if not np.array_equal(last["x"], np.tile(pattern, -(-last.length // BATCH))[-last.length :]):
        raise AssertionError("the chain gave a wrong result")
