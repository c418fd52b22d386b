"""ETL, STATS and PRED in one session of Spark that is warm: compiled from flows, and by hand, from Parquet to nowhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater.cores import whole_cores
from headwater.data.column import Text
from headwater.flow import Flow
from headwater.io import Collect, Parquet
from headwater.metrics import Report
from headwater.spark.buckets import Numbers
from headwater_bench.experiments import handwritten, spark_outputs
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages
from headwater_bench.riot.notes import notes_of
from headwater_bench.riot.pred import pred
from headwater_bench.riot.stats import stats

FORMS = (
    "native",
    "arrow",
    "bucket",
)  #: those that stream, as `spark_cold` has them, but for one that is never the best
_SCHEMA = "msg long, message string"
_ROW_GROUP = 2**15


class Bench:
    """The three flows over one file of messages."""

    def __init__(self, spark: Any, folder: Path, count: int, sensors: int) -> None:
        self._spark, self._programs = spark, handwritten.programs(spark)
        self._folder, self._count = folder, count
        city = CityStream(seed=1, sensors=sensors)
        self.notes = notes_of(CITY, city.ids)
        _write(folder / "all", messages(city, 0, count))
        # enough of every sensor for all of its steps to have something to say
        _write(folder / "few", messages(CityStream(seed=1, sensors=min(sensors, 56)), 0, min(count, 2000)))

    def ours(self, flow: str) -> Report:
        """Run our flow over all messages."""
        from headwater import spark

        return spark.run(self._flow(flow, self._folder / "all"))

    def by_hand(self, flow: str, form: str) -> float:
        """Run a handwritten form over all messages; return its seconds."""
        return handwritten.seconds(self._frame(flow, form, "all"))

    def rate(self, flow: str, form: str) -> float:
        """Return messages per second of one run, from its start to its end."""
        if form in FORMS:
            return self._count / self.by_hand(flow, form)
        began = time.perf_counter()
        self.last = self.ours(flow)
        return self._count / (time.perf_counter() - began)

    def differences(self, flow: str, forms: Sequence[str] = FORMS) -> list[str]:
        """Run ours and handwritten forms over a few messages and say where results differ from ours."""
        import pyarrow as pa

        from headwater import spark

        sink = Collect()
        spark.run(self._flow(flow, self._folder / "few", sink))
        ours = pa.Table.from_pylist(sink.records)
        texts = []
        for form in forms:
            theirs = pa.Table.from_pylist(handwritten.collected(self._frame(flow, form, "few")))
            texts += [f"{form}: {each}" for each in spark_outputs.differences(flow, ours, theirs)]
        return texts

    def _flow(self, name: str, folder: Path, sink: Any = None) -> Flow:
        source = Parquet(folder / "messages.parquet")
        if name == "etl":
            return etl(source, notes=self.notes, wide=True, publish=sink)
        return stats(source, publish=sink) if name == "stats" else pred(source, publish=sink)

    def _frame(self, flow: str, form: str, folder: str) -> Any:
        stream = handwritten.records(self._spark, self._folder / folder, _SCHEMA)
        cores = whole_cores()
        numbers = Numbers(cores)
        edges = [numbers.of_partition(number) for number in range(cores + 1)]
        return self._programs.program.results(flow, form, stream, self.notes, edges)


def _write(folder: Path, texts: Text) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    table = pa.table({"msg": np.arange(1, len(texts) + 1), "message": pa.array(texts.tolist(), pa.string())})
    pq.write_table(table, folder / "messages.parquet", row_group_size=_ROW_GROUP)
