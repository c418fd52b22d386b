"""ETL, STATS and PRED on Spark: compiled from flows, and by hand in two forms each, on the same messages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater.data.column import Text
from headwater.flow import Flow
from headwater.io import Collect, Parquet
from headwater.metrics import Report
from headwater_bench.experiments import handwritten
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages
from headwater_bench.riot.notes import notes_of
from headwater_bench.riot.pred import pred
from headwater_bench.riot.stats import stats

FORMS = ("native", "arrow")  #: with Spark's own functions, and with Python on Arrow batches, as far as each goes
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
        from headwater import spark

        first, second = Collect(), Collect()
        spark.run(self._flow(flow, self._folder / "few", first, second))
        told = []
        for form in forms:
            theirs = handwritten.collected(self._frame(flow, form, "few"))
            told += [
                f"{form}: {difference}" for difference in _COMPARE[flow](first.records, second.records, theirs)[:3]
            ]
        return told

    def _flow(self, name: str, folder: Path, first: Any = None, second: Any = None) -> Flow:
        source = Parquet(folder / "messages.parquet")
        if name == "etl":
            return etl(source, notes=self.notes, wide=True, publish=first, insert=second)
        if name == "stats":
            return stats(source, publish=first)
        return pred(source, publish=first, forecasts=second)

    def _frame(self, flow: str, form: str, folder: str) -> Any:
        stream = handwritten.records(self._spark, self._folder / folder, _SCHEMA)
        program = getattr(getattr(self._programs, flow), form)
        return program(stream, self.notes) if flow == "etl" else program(stream)


def _write(folder: Path, texts: Text) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    table = pa.table({"msg": np.arange(1, len(texts) + 1), "message": pa.array(texts.tolist(), pa.string())})
    pq.write_table(table, folder / "messages.parquet", row_group_size=_ROW_GROUP)


Rows = list[dict[str, Any]]


def _compare_etl(senml: Rows, rows: Rows, theirs: Rows) -> list[str]:
    told = _missing(senml, theirs, ("msg",))
    by_number = {row["msg"]: _entries(row["senml"]) for row in theirs}
    columns = {row["msg"]: row for row in theirs}
    for ours in senml:
        if ours["msg"] in by_number and not _alike(_entries(ours["senml"]), by_number[ours["msg"]], 1e-6):
            told.append(f"message {ours['msg']}: {ours['senml']} and {columns[ours['msg']]['senml']}")
    for ours in rows:
        other = columns.get(ours["msg"])
        if other is not None and not _alike(ours, {name: other[name] for name in ours}, 1e-6):
            told.append(f"row {ours['msg']}: {ours} and {other}")
    return told


def _compare_stats(ours: Rows, _: Rows, theirs: Rows) -> list[str]:
    keys = ("msg", "source", "obs", "kind")
    told = _missing(ours, theirs, keys)
    results = {tuple(row[key] for key in keys): row["result"] for row in theirs}
    for row in ours:
        other = results.get(tuple(row[key] for key in keys))
        # 32-bit floats here, Python's own there: a prediction ten values ahead shows the difference
        if other is not None and not _close(_numbers(row["result"]), _numbers(other), 1e-4):
            told.append(f"{row['kind']} {row['obs']} of message {row['msg']}: {row['result']} and {other}")
    return told


def _compare_pred(ours: Rows, forecasts: Rows, theirs: Rows) -> list[str]:
    told = _missing(ours, theirs, ("msg", "kind"))
    classes = {row["msg"]: (row["label"], row["predicted"]) for row in theirs if row["kind"] == "DTC"}
    for row in ours:
        if row["kind"] == "DTC" and row["msg"] in classes and row["label"] != classes[row["msg"]][0]:
            told.append(f"message {row['msg']}: {row['label']} and {classes[row['msg']][0]}")
    for row in forecasts:
        if row["msg"] in classes and not _close([row["predicted"]], [classes[row["msg"]][1]], 1e-5):
            told.append(f"forecast of message {row['msg']}: {row['predicted']} and {classes[row['msg']][1]}")
    # the error is in units of the latest average, and which that is depends on how records are batched
    return told


_COMPARE: dict[str, Callable[[Rows, Rows, Rows], list[str]]] = {
    "etl": _compare_etl,
    "stats": _compare_stats,
    "pred": _compare_pred,
}


def _missing(ours: Rows, theirs: Rows, keys: tuple[str, ...]) -> list[str]:
    mine, others = (sorted(tuple(row[key] for key in keys) for row in rows) for rows in (ours, theirs))
    if not mine:
        return ["we have no results at all"]
    if mine == others:
        return []
    odd = set(mine) ^ set(others)
    return [f"{len(mine)} and {len(others)} results; only one side has {min(odd) if odd else 'some twice'}"]


def _entries(senml: str) -> dict[str, Any]:
    told = json.loads(senml)
    return {"bt": told["bt"], **{e["n"]: float(e["v"]) if "v" in e else e["sv"] for e in told["e"]}}


def _alike(one: dict[str, Any], other: dict[str, Any], relative: float) -> bool:
    return one.keys() == other.keys() and all(
        _close([value], [other[name]], relative) if isinstance(value, float) else value == other[name]
        for name, value in one.items()
    )


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split("#") if part]


def _close(one: list[float], other: list[float], relative: float) -> bool:
    return len(one) == len(other) and bool(np.allclose(one, other, rtol=relative, atol=relative))
