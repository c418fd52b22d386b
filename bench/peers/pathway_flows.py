"""ETL, STATS and PRED as a user of Pathway writes them: wide rows, functions before the state, one reducer for the state.

A row with state behind it is what a stateful reducer makes of all rows of a commit. Each commit takes its earlier results
back, and a second such step would see that; so all steps with state are one reducer, steps that need none come before it,
and what is computed from its results is computed in it. Rows of a commit come in no order: the reducer sorts them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import bytewax_flows
import pathway as pw
import tasks
from load import Load, Taken, main

_COMMIT_MS = 10  #: 2 and 50 ms took about as much processor time
_MOST = 1000


class Message(pw.Schema):
    msg: int
    message: bytes


class Messages(pw.io.python.ConnectorSubject):
    deletions_enabled = False

    def __init__(self, load: Load) -> None:
        super().__init__()
        self.load = load

    def run(self) -> None:
        while (batch := self.load.due(_MOST)) is not None:
            for number, message in batch:
                self.next(msg=number, message=message)
            if not batch:
                time.sleep(0.001)


def by_sensor(make: Callable[[], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    return bytewax_flows.keyed(make)


def reduced(rows: pw.Table, function: Callable[[Any], list[Any]]) -> pw.Table:
    """Run all rows, in the order of their messages, through a function with state that returns results."""

    def combine(state: Any, updates: list[tuple[list[Any], int]]) -> tuple[Any, ...]:
        ordered = sorted([values[0] for values, _ in updates])
        return tuple([result for row in ordered for result in function(row)])

    many = pw.reducers.stateful_many(combine)
    return rows.reduce(result=many(pw.this.row)).flatten(pw.this.result)


def sink(table: pw.Table, load: Load) -> list[Taken]:
    """Take results as they come; what a later commit takes back was counted when it came."""
    results = Taken(load)

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            results.take([row["result"]])

    pw.io.subscribe(table, on_change=on_change)
    return [results]


def etl(load: Load, rows: pw.Table) -> tuple[list[Taken], float]:
    sensors, notes = tasks.Known(load.notes), load.notes
    fill = by_sensor(lambda: tasks.Interpolation().fill)

    @pw.udf(deterministic=True)
    def ranged(row: tuple) -> tuple:
        return tasks.in_range(row)

    @pw.udf(deterministic=True)
    def ask(row: tuple) -> tuple:
        return sensors.ask(row)

    def finish(row: Any) -> list[Any]:
        annotated = tasks.annotate(fill(tuple(row)), notes)
        return [annotated, tasks.senml(annotated)]

    checked = rows.select(row=ranged(pw.this.row)).select(row=ask(pw.this.row))
    return sink(reduced(checked, finish), load), 2


def stats(load: Load, rows: pw.Table) -> tuple[list[Taken], float]:
    smooth = by_sensor(lambda: tasks.Kalman().smooth)
    predict = by_sensor(lambda: tasks.Regression().predict)
    moment = by_sensor(lambda: tasks.Moment().estimate)
    distinct = tasks.Distinct()

    def compute(row: Any) -> list[Any]:
        line = predict(smooth(row))
        results = [moment(row), distinct.count(row)]
        return results if line is None else [line, *results]

    return sink(reduced(rows, compute), load), 3


def pred(load: Load, rows: pw.Table) -> tuple[list[Taken], float]:
    average = bytewax_flows.keyed(lambda: tasks.Average().add, 1)
    error = tasks.Error()

    @pw.udf(deterministic=True)
    def classified(row: tuple) -> tuple:
        return tasks.classify(row)

    @pw.udf(deterministic=True)
    def regressed(row: tuple) -> tuple:
        return tasks.regress(row)

    classes = sink(rows.select(result=classified(pw.this.row)), load)
    forecasts = rows.select(row=regressed(pw.this.row))
    return [*classes, *sink(reduced(forecasts, lambda row: [error.estimate(average(row))]), load)], 2


def run(load: Load) -> tuple[list[Taken], float]:
    logging.disable(logging.WARNING)
    messages = pw.io.python.read(Messages(load), schema=Message, autocommit_duration_ms=_COMMIT_MS)

    @pw.udf(deterministic=True)
    def parsed(number: int, message: bytes) -> tuple:
        return tasks.parse((number, message))

    rows = messages.select(row=parsed(pw.this.msg, pw.this.message))
    outputs = {"etl": etl, "stats": stats, "pred": pred}[load.flow](load, rows)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return outputs


if __name__ == "__main__":
    main(run, bytewax_flows.steps)  # the same functions, so the same rates
