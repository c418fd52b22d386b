"""History first: a flow over a table as a batch job on Spark, beside the same by hand, and what a stream goes on from.

Readings of sensors are smoothed, and their means taken in windows. Before anything is timed, results are compared with
both handwritten forms, and history that is handed to a stream, on the engine and on Spark, with having streamed it all.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from headwater import agg
from headwater.deploy.takeover import take_over
from headwater.flow import Flow, Tumbling
from headwater.flow.ranges import Sizes
from headwater.io import Discard, JsonLines, Parquet
from headwater.spark.forkserver import python_processes
from headwater.steps import Kalman
from headwater_bench.experiments import handwritten
from headwater_bench.experiments.rates.memory import private_mb
from headwater_bench.experiments.rows import write_rows

ROWS, QUICK = 50_000_000, 2_000_000
REPEATS = 2  #: each takes minutes
SENSORS = 1_000
FORMS = ("arrow", "pandas")
_FEW = 40_000  #: rows of the comparisons
_FILE = 2**20  #: rows of one file of the table: within it they are in no order
_HZ = 1_000  #: of all sensors together
_BEGIN_US = 1_700_000_000_000_000
_WINDOW_S, _LATENESS_S = 10, 2
_SIZE_US = _WINDOW_S * 10**6


def run(
    quick: bool = False, output: Path | None = None, *, rows: int | None = None, repeats: int | None = None
) -> dict[str, Any]:
    """Compare; `rows` are those of the table."""
    from headwater.spark.session import session

    spark = session()
    count, times = rows or (QUICK if quick else ROWS), repeats or (1 if quick else REPEATS)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        bench = Bench(spark, Path(folder), count)
        answer = {
            "rows": count,
            "sensors": SENSORS,
            "handed_on": bench.handed_on(),
            "differences": bench.differences(),
            **bench.timed(times),
            "repeats": times,
        }
    if output is not None:
        rates = [{"form": form, "rows_per_s": rate} for form, rate in answer["rates"].items()]
        write_rows(rates, output / "backfill.csv")
    return answer


class Bench:
    """One flow over a table, and over a small one."""

    def __init__(self, spark: Any, folder: Path, count: int) -> None:
        self._spark, self._programs = spark, handwritten.programs(spark)
        self._folder, self._count = folder, count
        self._checkpoints = 0
        write_table(folder / "table", count)
        few = min(count, _FEW)
        write_table(folder / "few", few)
        self._until = 3 * few // 4
        write_file(folder / "all.parquet", 0, few)
        write_file(folder / "rest.parquet", self._until, few)

    def handed_on(self) -> dict[str, bool]:
        """Say whether history, and then a stream on the engine or on Spark, gives what streaming all of it does."""
        from headwater import engine, spark

        engine.run(flow_of(Parquet(self._folder / "all.parquet"), JsonLines(self._folder / "all.jsonl")))
        equal = {}
        for runner in ("engine", "spark"):
            out = self._folder / f"{runner}.jsonl"
            flow = flow_of(Parquet(self._folder / "rest.parquet"), JsonLines(out))
            checkpoint = self._checkpoint()
            sizes = Sizes(2, batch_records=_FEW // 8)
            spark.backfill(flow, self._folder / "few", until=_text(self._until), checkpoint=checkpoint, sizes=sizes)
            if runner == "engine":
                there = self._checkpoint()
                take_over(flow, checkpoint, there)
                engine.run(flow, checkpoint=there)
            else:
                spark.run(flow, checkpoint=checkpoint)
            equal[runner] = sorted(_lines(out)) == sorted(_lines(self._folder / "all.jsonl"))
        return equal

    def differences(self) -> list[str]:
        """Say where results of the handwritten forms differ from ours, over a few rows."""
        from headwater import spark

        out = self._folder / "ours.jsonl"
        flow = flow_of(Parquet(self._folder / "rest.parquet"), JsonLines(out))
        spark.backfill(flow, self._folder / "few", checkpoint=self._checkpoint())
        import msgspec

        ours = {(row["sensor"], row["start"]): (row["n"], row["mean"]) for row in map(msgspec.json.decode, _lines(out))}
        few, mismatches = min(self._count, _FEW), []
        for form in FORMS:
            rows = self._by_hand(form, "few", few).collect()
            theirs = {(row.sensor, _text_of(row.start)): (row.n, row.mean) for row in rows}
            if not ours or ours.keys() != theirs.keys():
                mismatches.append(f"{form}: {len(ours)} and {len(theirs)} windows")
            elif not np.allclose([ours[key] for key in ours], [theirs[key] for key in ours], rtol=1e-4):
                mismatches.append(f"{form}: other values")
        return mismatches

    def timed(self, repeats: int) -> dict[str, Any]:
        """Time ours and the better of the others in turns; and ours over a quarter, to see what memory depends on."""
        rates: dict[str, list[float]] = {form: [] for form in ("ours", *FORMS)}
        with Memory(_java()) as quarter:
            self._ours(self._count // 4)
        with Memory(_java()) as whole:
            rates["ours"].append(self._ours(self._count))
        for form in FORMS:
            rates[form].append(self._theirs(form))
        best = max(FORMS, key=lambda form: rates[form][0])  # the other one takes minutes, and is behind
        for _ in range(repeats - 1):
            rates["ours"].append(self._ours(self._count))
            rates[best].append(self._theirs(best))
        medians = {form: round(statistics.median(tried)) for form, tried in rates.items()}
        return {
            "rate": medians["ours"],
            "handwritten_rate": medians[best],
            "over_handwritten": round(statistics.median(a / b for a, b in zip(*_pair(rates, best), strict=True)), 2),
            "better": best,
            "rates": medians,
            "python_mb": round(whole.python_mb),
            "python_mb_of_a_quarter": round(quarter.python_mb),
            "java_mb": round(whole.java_mb),
            "driver_mb": round(whole.driver_mb),
        }

    def _ours(self, count: int) -> float:
        from headwater import spark

        flow = flow_of(Parquet(self._folder / "rest.parquet"), Discard())
        checkpoint = self._checkpoint()
        return self._rate(
            lambda: spark.backfill(flow, self._folder / "table", until=_text(count), checkpoint=checkpoint), count
        )

    def _rate(self, act: Callable[[], Any], count: int) -> float:
        began = time.perf_counter()
        act()
        return count / (time.perf_counter() - began)

    def _theirs(self, form: str) -> float:
        def act() -> None:
            self._by_hand(form, "table", self._count).write.format("noop").mode("overwrite").save()

        return self._rate(act, self._count)

    def _by_hand(self, form: str, folder: str, count: int) -> Any:
        table = self._spark.read.parquet(str(self._folder / folder))
        over = _at(count - 1) - _LATENESS_S * 10**6
        return getattr(self._programs.history, form)(table, _at(count), over, SENSORS, _SIZE_US)

    def _checkpoint(self) -> Path:
        self._checkpoints += 1
        return self._folder / f"checkpoint-{self._checkpoints}"


def flow_of(source: Any, sink: Any) -> Flow:
    """Smooth the readings of each sensor, and take their means in windows."""
    flow = Flow("readings")
    timed = flow.read("readings", source).event_time("time", "at", lateness=f"{_LATENESS_S} s")
    smooth = timed.key_by("sensor").scan("smooth", Kalman("value"))
    means = smooth.key_by("sensor").window("means", Tumbling(f"{_WINDOW_S} s"), n=agg.count(), mean=agg.mean("value"))
    means.write("out", sink)
    return flow


def write_table(folder: Path, count: int) -> None:
    """Write a table: files in order of time, the rows of each in none."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for start in range(0, count, _FILE):
        numbers = np.arange(start, min(count, start + _FILE))
        _write(folder / f"{start:012d}.parquet", rng.permutation(numbers))


def write_file(path: Path, start: int, stop: int) -> None:
    """Write readings in order of time."""
    _write(path, np.arange(start, stop))


def _write(path: Path, numbers: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sensor = numbers * 7919 % SENSORS
    value = (20 + sensor % 13 + (numbers * 2654435761 % 1000) / 250).astype(np.float32)
    at = pa.array(_BEGIN_US + numbers * (10**6 // _HZ), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"sensor": sensor, "value": value, "at": at}), path, row_group_size=2**17)


def _at(number: int) -> int:
    return _BEGIN_US + number * (10**6 // _HZ)


def _text(number: int) -> str:
    return str(_at(number))


def _text_of(at_us: int) -> str:
    from headwater.data.timestamps import moment_as_text

    return str(moment_as_text(at_us))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _pair(rates: dict[str, list[float]], best: str) -> tuple[list[float], list[float]]:
    return rates["ours"], rates[best]


def _java() -> int:
    from headwater.spark.gateway import java_pid

    return java_pid()


class Memory(AbstractContextManager["Memory"]):
    """The most that this process, Java and its Python processes have of their own while the context lasts."""

    def __init__(self, java: int) -> None:
        self._java, self._over = java, Event()
        self.java_mb = self.python_mb = self.driver_mb = 0.0

    def __enter__(self) -> Memory:
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()  # whatever ran for less than a period is still there: Spark keeps its Python processes for a minute

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self._look()

    def _look(self) -> None:
        self.driver_mb = max(self.driver_mb, private_mb(os.getpid()))
        self.java_mb = max(self.java_mb, private_mb(self._java))
        self.python_mb = max(self.python_mb, sum(map(_mb, python_processes(self._java))))


def _mb(pid: int) -> float:
    try:
        return private_mb(pid)
    except OSError:  # it has ended meanwhile
        return 0.0


def table(answer: dict[str, Any]) -> str:
    """Show the answer."""
    rates = answer["rates"]
    verdicts = ", ".join(f"{name} {'equal' if equal else 'NOT EQUAL'}" for name, equal in answer["handed_on"].items())
    lines = [f"{answer['rows']:,} rows of {answer['sensors']:,} sensors, rows/s"]
    lines += [f"  {form:8s} {rate:12,d}" for form, rate in rates.items()]
    lines.append(f"  ours over {answer['better']}: {answer['over_handwritten']:.2f}")
    lines.append(f"history, then a stream, against having streamed it all: {verdicts}")
    lines += [f"  {difference}" for difference in answer["differences"]]
    lines.append(
        f"memory of Python processes {answer['python_mb']:,} MB, of a quarter of the rows "
        f"{answer['python_mb_of_a_quarter']:,} MB; Java {answer['java_mb']:,} MB, the driver {answer['driver_mb']:,} MB"
    )
    return "\n".join(lines)
