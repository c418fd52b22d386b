"""TRAIN: on each trigger, rows of a table become a regression and a decision tree, stored and announced."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headwater.data.column import Array, Text
from headwater.data.schema import Schema
from headwater.data.text_format import TextFormat, decimal_texts
from headwater.flow import Flow
from headwater.flow.duration import Duration
from headwater.flow.endpoints import Reject, Resume, Sink, Source
from headwater.io import Discard, Generate, Items
from headwater.io.rates import Rate
from headwater_bench.riot.datasets import CITY, Dataset
from headwater_bench.riot.generate import stream
from headwater_bench.riot.instances import counted
from headwater_bench.riot.learn import (
    ROWS,
    TRAINED,
    TRIGGERS,
    LabelRows,
    ReadTable,
    Table,
    TrainRegression,
    TrainTree,
    single_lines,
)
from headwater_bench.riot.parse import csv_columns
from headwater_bench.riot.stats import write_all

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
    labelled: Sink | None = None,
    instances: Mapping[str, int] | None = None,
) -> Flow:
    """Build the flow: two models for each trigger, stored in the folder `models`.

    A sink for `labelled` also takes out the labelled rows, one record for each.
    """
    count = counted(INSTANCES, instances)
    read_from = generated_table(dataset) if table is None else table
    flow = Flow("train")
    triggers = flow.read("triggers", source)
    rows = triggers.apply("read", partial(ReadTable, read_from), out=ROWS, parallel=count["read"])
    lines = rows.apply("mlt", partial(TrainRegression, dataset, models), out=TRAINED, parallel=count["mlt"])
    classes = rows.apply("annotate", partial(LabelRows, dataset), out=ROWS, parallel=count["annotate"])
    trees = classes.apply("dtt", partial(TrainTree, dataset, models), out=TRAINED, parallel=count["dtt"])
    write_all(flow, "publish", [lines, trees], publish or Discard(), count["publish"])
    if labelled is not None:
        classes.map_batches("lines", single_lines, out={"msg": int, "row": str}).write("labelled", labelled)
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


class Triggers:
    """Asks for 100 rows of a generated table again and again; or, from a file, once for all of its rows."""

    resume: Resume = "position"

    def __init__(self, rate: Rate | float = 20, path: Path | None = None, dataset: Dataset = CITY) -> None:
        self.rate, self.path, self.dataset = rate, path, dataset
        self.table = generated_table(dataset) if path is None else Table.read(path)

    @property
    def schema(self) -> Schema:
        """The trigger's number and the range of rows."""
        return TRIGGERS

    def open(self, reject: Reject, position: int | None = None) -> Any:
        """Start to send triggers, or go on after the first of them."""
        if self.path is None:
            return triggers(self.rate, table_rows=len(self.table)).open(reject, position)
        every = {"msg": 1, "rowstart": 0, "rowend": len(self.table) + 1}
        return Items([every], TRIGGERS).open(reject, position)

    def at_rate(self, rate: float) -> Triggers:
        """Return the same triggers at another rate."""
        return Triggers(rate, self.path, self.dataset)

    def from_file(self, path: Path) -> Triggers:
        """Return one trigger for the whole of a file."""
        return Triggers(self.rate, path, self.dataset)

    def __str__(self) -> str:
        return f"training triggers of {self.dataset.name}"


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
    return Table(TextFormat(pieces, escape=False).format(texts).data.tobytes())
