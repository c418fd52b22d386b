"""ETL, STATS and PRED as a user of Bytewax writes them: a batch at a time, state by sensor.

A message stays one row; with `--tall`, ETL and STATS have a record for each observation, as RIoTBench has it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import tall
import tasks
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main
from load import Load, Taken, main, per_second

_MOST = 1000  #: messages that the source hands over at once; 250 took a tenth more processor time, 50 a third more
_PAUSE = timedelta(milliseconds=1)
_KINDS = [str(kind) for kind in range(len(tasks.NUMBERS))]


class Messages(DynamicSource):
    def __init__(self, load: Load) -> None:
        self.load = load

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSourcePartition:
        return _Messages(self.load)


class _Messages(StatelessSourcePartition):
    def __init__(self, load: Load) -> None:
        self.load, self.idle = load, False

    def next_batch(self) -> list[tuple[int, bytes]]:
        batch = self.load.due(_MOST)
        if batch is None:
            raise StopIteration
        self.idle = not batch
        return batch

    def next_awake(self) -> datetime | None:
        return datetime.now(UTC) + _PAUSE if self.idle else None


class Null(DynamicSink):
    def __init__(self, taken: Taken) -> None:
        self.taken = taken

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition:
        return _Null(self.taken)


class _Null(StatelessSinkPartition):
    def __init__(self, taken: Taken) -> None:
        self.write_batch = taken.take

    def write_batch(self, items: list[Any]) -> None:
        raise AssertionError("replaced by the one who takes")


class PerKey(StatefulBatchLogic):
    """Runs one key's rows through a function with state; a result of None is left out."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
        function = self.function
        return [result for row in values if (result := function(row)) is not None], False

    def snapshot(self) -> Any:
        return self.function.__self__


def each(name: str, up: Stream, function: Callable[[Any], Any]) -> Stream:
    return op.flat_map_batch(name, up, lambda items: [function(item) for item in items])


def by_key(name: str, up: Stream, make: Callable[[], Callable[[Any], Any]]) -> Stream:
    """Run a function with state for each key, and take the key off again."""
    states = op.stateful_batch(name, up, lambda before: PerKey(make()))
    return op.flat_map_batch(f"{name}-out", states, lambda pairs: [value for _, value in pairs])


def by_sensor(name: str, up: Stream) -> Stream:
    return op.flat_map_batch(name, up, lambda rows: [(row[2], row) for row in rows])


def for_all(name: str, up: Stream) -> Stream:
    return op.flat_map_batch(name, up, lambda rows: [("all", row) for row in rows])


def etl(load: Load, flow: Dataflow, rows: Stream) -> tuple[list[Taken], float]:
    inserted, published = Taken(load), Taken(load)
    ranged = each("range", rows, tasks.in_range)
    sensors = each("bloom", ranged, tasks.Known(load.notes).ask)
    filled = by_key("interpolate", by_sensor("key", sensors), lambda: tasks.Interpolation().fill)
    annotated = each("annotate", filled, lambda row: tasks.annotate(row, load.notes))
    op.output("insert", annotated, Null(inserted))
    op.output("publish", each("senml", annotated, tasks.senml), Null(published))
    return [inserted, published], 2


def stats(load: Load, flow: Dataflow, rows: Stream) -> tuple[list[Taken], float]:
    results = Taken(load)
    keyed = by_sensor("key", rows)
    smoothed = op.stateful_batch("kalman", keyed, lambda before: PerKey(tasks.Kalman().smooth))
    lines = by_key("slr", smoothed, lambda: tasks.Regression().predict)
    moments = by_key("som", keyed, lambda: tasks.Moment().estimate)
    counts = by_key("dac", for_all("all", rows), lambda: tasks.Distinct().count)
    op.output("publish", op.merge("results", lines, moments, counts), Null(results))
    return [results], 3


def tall_etl(load: Load, flow: Dataflow, rows: Stream) -> tuple[list[Taken], float]:
    inserted, published = Taken(load), Taken(load)
    ranged = each("range", observed(rows), tall.in_range)
    sensors = each("bloom", ranged, tasks.Known(load.notes).ask)
    filled = by_key("interpolate", by_observation("key", sensors), lambda: tall.Interpolation().fill)
    joined = by_key("join", by_sensor("sensor", filled), lambda: tall.Join().add)
    annotated = each("annotate", joined, lambda row: tasks.annotate(row, load.notes))
    op.output("insert", annotated, Null(inserted))
    op.output("publish", each("senml", annotated, tasks.senml), Null(published))
    return [inserted, published], 2


def tall_stats(load: Load, flow: Dataflow, rows: Stream) -> tuple[list[Taken], float]:
    results, records = Taken(load), observed(rows)
    keyed = by_observation("key", records)
    smoothed = op.stateful_batch("kalman", keyed, lambda before: PerKey(tall.Kalman().smooth))
    lines = by_key("slr", smoothed, lambda: tall.Regression().predict)
    moments = by_key("som", keyed, lambda: tall.Moment().estimate)
    kinds = op.flat_map_batch("kind", records, lambda several: [(_KINDS[record[5]], record) for record in several])
    counts = by_key("dac", kinds, lambda: tall.Distinct().count)
    op.output("publish", op.merge("results", lines, moments, counts), Null(results))
    return [results], 15


def observed(rows: Stream) -> Stream:
    return op.flat_map_batch(
        "observe", rows, lambda several: [record for row in several for record in tall.observations(row)]
    )


def by_observation(name: str, up: Stream) -> Stream:
    return op.flat_map_batch(name, up, lambda records: [(tall.key(record), record) for record in records])


def pred(load: Load, flow: Dataflow, rows: Stream) -> tuple[list[Taken], float]:
    results = Taken(load)
    classes = each("dtc", rows, tasks.classify)
    forecasts = each("mlr", rows, tasks.regress)
    keyed = op.flat_map_batch("key", forecasts, lambda items: [(item[1], item) for item in items])
    means = by_key("average", keyed, lambda: tasks.Average().add)
    errors = by_key("error", for_all("all", means), lambda: tasks.Error().estimate)
    op.output("publish", op.merge("results", classes, errors), Null(results))
    return [results], 2


def run(load: Load) -> tuple[list[Taken], float]:
    flow = Dataflow(load.flow)
    messages = op.input("messages", flow, Messages(load))
    rows = each("parse", messages, tasks.parse)
    flows = {"etl": tall_etl, "stats": tall_stats} if load.tall else {"etl": etl, "stats": stats, "pred": pred}
    outputs = flows[load.flow](load, flow, rows)
    run_main(flow)
    return outputs


def keyed(make: Callable[[], Callable[[Any], Any]], place: int = 2) -> Callable[[Any], Any]:
    """Return what a keyed step does, without Bytewax: a function with state for each key in a dictionary."""
    states: dict[Any, Callable[[Any], Any]] = {}

    def run(row: Any) -> Any:
        key = row[place]
        if key not in states:
            states[key] = make()
        return states[key](row)

    return run


def steps(load: Load) -> dict[str, float]:
    """Return what each step's Python function alone does per second; the rest of the time is the system's own."""
    numbered = list(enumerate(load.messages))
    rows = [tasks.parse(item) for item in numbered]
    parse = {"parse": tasks.parse}
    if load.flow == "etl":
        return per_second(
            {
                **parse,
                "range": tasks.in_range,
                "bloom": tasks.Known(load.notes).ask,
                "interpolate": keyed(lambda: tasks.Interpolation().fill),
                "annotate": lambda row: tasks.annotate(row, load.notes),
                "senml": tasks.senml,
            },
            numbered,
        )
    if load.flow == "stats":
        chain = {"kalman": keyed(lambda: tasks.Kalman().smooth), "slr": keyed(lambda: tasks.Regression().predict)}
        return {
            **per_second({**parse, **chain}, numbered),
            **per_second({"som": keyed(lambda: tasks.Moment().estimate)}, rows),
            **per_second({"dac": tasks.Distinct().count}, rows),
        }
    chain = {"mlr": tasks.regress, "average": keyed(lambda: tasks.Average().add, 1), "error": tasks.Error().estimate}
    return {**per_second({**parse, "dtc": tasks.classify}, numbered), **per_second(chain, rows)}


if __name__ == "__main__":
    main(run, steps)
