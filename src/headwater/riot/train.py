"""TRAIN: on each trigger, rows of a table become a regression and a decision tree, stored and announced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.flow import Flow
from headwater.flow.column import Array, Text
from headwater.flow.duration import Duration
from headwater.flow.endpoints import Sink, Source
from headwater.io import Discard, Generate
from headwater.io.rates import Rate
from headwater.kernels.weave import Weaver, decimal_texts
from headwater.riot.datasets import CITY, Dataset
from headwater.riot.generate import stream
from headwater.riot.instances import counted
from headwater.riot.learn import (
    ROWS,
    TRAINED,
    TRIGGERS,
    LabelRows,
    ReadTable,
    Table,
    TrainRegression,
    TrainTree,
)
from headwater.riot.parse import csv_columns
from headwater.riot.stats import write_all

#: How many instances of each step EdgeWise ran.
INSTANCES = {"read": 2, "mlt": 2, "annotate": 1, "dtt": 2, "publish": 1}

_TABLE_ROWS = 5000


def train(
    source: Source,
    *,
    models: Path,
    table: Table | None = None,
    dataset: Dataset = CITY,
    publish: Sink | None = None,
    instances: Mapping[str, int] | None = None,
) -> Flow:
    """Build the flow: two models for each trigger, stored in the folder `models`."""
    count = counted(INSTANCES, instances)
    read_from = generated_table(dataset) if table is None else table
    flow = Flow("train")
    triggers = flow.read("triggers", source)
    rows = triggers.apply("read", lambda: ReadTable(read_from), out=ROWS, parallel=count["read"])
    lines = rows.apply("mlt", lambda: TrainRegression(dataset, models), out=TRAINED, parallel=count["mlt"])
    labelled = rows.apply("annotate", lambda: LabelRows(dataset), out=ROWS, parallel=count["annotate"])
    trees = labelled.apply("dtt", lambda: TrainTree(dataset, models), out=TRAINED, parallel=count["dtt"])
    write_all(flow, "publish", [lines, trees], publish or Discard(), count["publish"])
    return flow


def triggers(
    rate: Rate | float,
    *,
    rows: int = 100,
    table_rows: int = _TABLE_ROWS,
    count: int | None = None,
    duration: Duration | None = None,
) -> Generate:
    """Ask for so many rows of a table at a time, further on with each trigger, and from its start again."""
    last = max(table_rows - rows, 1)

    def make(numbers: Array) -> Mapping[str, Any]:
        start = numbers * rows % last
        return {"msg": numbers, "rowstart": start, "rowend": start + rows + 1}

    return Generate(make, TRIGGERS, rate, count=count, duration=duration)


def generated_table(dataset: Dataset, rows: int = _TABLE_ROWS, seed: int = 1) -> Table:
    """Return generated records as a table of the annotated form, in which the benchmark trains."""
    columns = stream(dataset.name, seed).columns(0, rows)
    columns["timestamp"] = columns.pop("time_ms")
    texts = []
    for name in csv_columns(dataset):
        column = columns.get(name)
        if column is None:
            texts.append(Text.of(["-"] * rows))
        elif isinstance(column, Text):
            texts.append(column)
        else:
            texts.append(Text(*decimal_texts(column.astype(float), 5)))  # type: ignore[union-attr]
    pieces = [b"", *[b","] * (len(texts) - 1), b"\n"]
    return Table(Weaver(pieces, escape=False).weave(texts).data.tobytes())
