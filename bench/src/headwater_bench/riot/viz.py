"""STATS with pictures, as the benchmark's paper has it: results are grouped, plotted, zipped and stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from headwater.data.batch import END, Batch, stamped
from headwater.data.column import Array, Column, Text
from headwater.data.schema import Schema
from headwater.data.text_format import float32_rows
from headwater.flow import Flow
from headwater.flow.endpoints import Sink, Source
from headwater.flow.state import Rows
from headwater.flow.steps import Apply, Input
from headwater.flow.stream import Stream
from headwater.io import Discard
from headwater.operators import Operator, Output
from headwater.operators.operator import Select
from headwater.operators.snapshot import pack_state, unpack_state
from headwater.steps import BlockAverage, Kalman
from headwater_bench.riot.blobs import zipped
from headwater_bench.riot.chart import line_chart
from headwater_bench.riot.datasets import CITY, Dataset
from headwater_bench.riot.instances import counted
from headwater_bench.riot.parse import ParseObservations, observation_schema, row_schema
from headwater_bench.riot.scans import RESULTS, DistinctCount, SlidingRegression

INSTANCES = {"parse": 1, "average": 1, "kalman": 1, "slr": 1, "dac": 1, "viz": 1, "upload": 1}

ARCHIVES = Schema.of({"msg": int, "name": str, "data": object})


class ParseWithIds(ParseObservations):
    """Puts out the numbers of a message one by one, and the whole row once, by the output `ids`."""

    def process(self, batch: Batch, port: int) -> Output:
        """Return observations, rows and dead letters."""
        outputs = self.rows(batch)
        return [(0, self.spread(outputs[0][1])), (1, _with_obs(outputs[0][1])), *outputs[1:]]


def _with_obs(rows: Batch) -> Batch:
    return rows.with_columns({"obs": np.zeros(rows.length, np.int64)})


class AverageResults(BlockAverage):
    """The mean of every ten values of a sensor, in the form of the other results."""

    def __init__(self, obs: Text, size: int = 10) -> None:
        super().__init__(size, "value")
        self.makes = RESULTS
        self._obs = obs

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the means that became complete."""
        rows, means = self.means(batch, slots, state)
        kind = Text.of(["AVG"] * len(rows))
        return rows, {
            "obs": self._obs.take(batch["obs"][rows]),
            "kind": kind,
            "result": Text(*float32_rows(means.reshape(-1, 1), "#")),
        }


class Plot(Operator):
    """Collects results; every `results` of them become a chart for each sensor, every `charts` an archive.

    What is left at the end becomes a last archive.
    """

    stateless = False

    def __init__(self, id: str, results: int = 20, charts: int = 100) -> None:
        self._id, self._results, self._charts = id, results, charts
        self._points: dict[str, dict[str, list[tuple[float, float]]]] = {}
        self._count = self._archives = self._made = 0
        self._drawn: dict[str, str] = {}
        self._last = Batch({"msg": np.zeros(1, np.int64)}, 1, stamped(1))  #: the last record, for the last archive

    def process(self, batch: Batch, port: int) -> Output:
        """Return the archives that became full."""
        archives: list[tuple[int, bytes, int]] = []
        self._last = batch.slice(batch.length - 1, batch.length)
        rows = zip(batch["timestamp"].tolist(), batch[self._id].tolist(), batch["obs"].tolist(), strict=True)
        for i, ((time, sensor, obs), kind, result) in enumerate(
            zip(rows, batch["kind"].tolist(), batch["result"].tolist(), strict=True)
        ):
            series = self._points.setdefault(f"{sensor}-{obs}", {}).setdefault(kind, [])
            values = [float(value) for value in result.split("#") if value]
            series += [(time + ahead, value) for ahead, value in enumerate(values)]
            self._count += 1
            if self._count >= self._results:
                self._draw()
            while len(self._drawn) >= self._charts:
                archives.append((i, self._zip(self._charts), self._archives))
        return self._batch(batch, archives)

    def advance(self, watermark: int) -> Output:
        """Put out what is left, at the end."""
        if watermark != END or not (self._points or self._drawn):
            return None
        self._draw()
        return self._batch(self._last, [(0, self._zip(len(self._drawn)), self._archives)])

    def _draw(self) -> None:
        for label, series in self._points.items():
            self._made += 1
            start = min(time for line in series.values() for time, _ in line)
            moved = {kind: [(time - start, value) for time, value in line] for kind, line in series.items()}
            self._drawn[f"{self._made}-{label}.svg"] = line_chart(label, moved, "ms since the first result")
        self._points, self._count = {}, 0

    def _zip(self, count: int) -> bytes:
        names = list(self._drawn)[:count]
        self._archives += 1
        return zipped({name: self._drawn.pop(name).encode() for name in names})

    def _batch(self, batch: Batch, archives: list[tuple[int, bytes, int]]) -> Output:
        if not archives:
            return None
        rows = np.array([row for row, _, _ in archives])
        data = np.empty(len(archives), object)
        data[:] = [raw for _, raw, _ in archives]
        names = Text.of([f"charts-{number}.zip" for _, _, number in archives])
        columns: dict[str, Column] = {"msg": batch["msg"][rows], "name": names, "data": data}
        return Batch(columns, len(archives), batch.stamps[rows])

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save what waits to be drawn or zipped."""
        parts: dict[str, Any] = {"points": self._points, "count": self._count, "drawn": self._drawn}
        return pack_state("plot", {**parts, "archives": self._archives, "made": self._made})

    def restore(self, data: bytes) -> None:
        """Take over what waits."""
        content = unpack_state("plot", data)
        self._points = {
            label: {kind: [(point[0], point[1]) for point in line] for kind, line in series.items()}
            for label, series in content["points"].items()
        }
        self._count, self._archives, self._made = content["count"], content["archives"], content["made"]
        self._drawn = dict(content["drawn"])


def stats_viz(
    source: Source,
    *,
    dataset: Dataset = CITY,
    upload: Sink | None = None,
    results: int = 20,
    charts: int = 100,
    instances: Mapping[str, int] | None = None,
) -> Flow:
    """Build the flow: averages, predictions and counts of distinct sensors, drawn and put into archives."""
    count = counted(INSTANCES, instances)
    names = Text.of(dataset.numbers)
    flow = Flow("stats-viz")
    parsed = flow.read("messages", source).apply(
        "parse",
        partial(ParseWithIds, dataset, dataset.numbers, csv=True),
        out=observation_schema(dataset),
        sides={"ids": row_schema(dataset).with_fields({"obs": int})},
        parallel=count["parse"],
    )
    out = {"msg": int, "timestamp": int, dataset.id: str, "obs": str, "kind": str, "result": str}
    keyed = parsed.key_by(dataset.id, "obs")
    averages = keyed.scan("average", AverageResults(names), out=out, parallel=count["average"])
    kalman = keyed.scan("kalman", Kalman(), parallel=count["kalman"])
    lines = kalman.key_by(dataset.id, "obs").scan("slr", SlidingRegression(names), out=out, parallel=count["slr"])
    counter = DistinctCount(Text.of([dataset.id]), dataset.id)
    counts = parsed.side("ids").key_by("obs").scan("dac", counter, out=out, parallel=count["dac"])
    by_sensor = (dataset.id, "obs")
    inputs = tuple(
        Input(stream.step, stream.port, stream.schema, "key", keys)
        for stream, keys in ((averages, by_sensor), (lines, by_sensor), (counts, ("obs",)))
    )
    plot = Apply(partial(Plot, dataset.id, results, charts), by_sensor)
    flow.add("viz", plot, inputs=inputs, outputs={"out": ARCHIVES}, parallel=count["viz"])
    Stream(flow, "viz").write("upload", upload or Discard(), parallel=count["upload"])
    return flow
