"""Messages taken apart: SenML or CSV into one row for each message, or one record for each observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from headwater.flow.batch import Batch
from headwater.flow.column import Column, Text
from headwater.flow.schema import Schema
from headwater.kernels.csv import CsvSplitter
from headwater.kernels.senml import Kind, SenmlParser
from headwater.operators import DEAD, Operator, Output
from headwater.operators.operator import dead_letters
from headwater.riot.datasets import Dataset

Form = Literal["senml", "csv"]  #: how messages are written


def row_schema(dataset: Dataset) -> Schema:
    """Return the columns of a whole message: number, time, id, meta data and all numbers."""
    texts = dict.fromkeys((dataset.id, *dataset.meta), "text")
    return Schema.of({"msg": int, "timestamp": int, **texts, **dict.fromkeys(dataset.numbers, "float32")})


def observation_schema(dataset: Dataset) -> Schema:
    """Return the columns of one observation: `obs` is its place in `dataset.observed`."""
    texts = dict.fromkeys((dataset.id, *dataset.meta), "text")
    return Schema.of({"msg": int, "timestamp": int, **texts, "obs": int, "value": "float32"})


class ParseRows(Operator):
    """SenML or CSV in, one row for each message out; what is not a message is a dead letter.

    CSV lines have the columns of the joined and annotated row, as the benchmark's training files do.
    """

    def __init__(self, dataset: Dataset, form: Form = "senml", step: str = "parse") -> None:
        self._dataset, self._step, self._form = dataset, step, form
        texts = (dataset.id, *dataset.meta)
        kinds: dict[str, Kind] = {
            entry.name: "text" if entry.name in texts else "float" for entry in dataset.fields
        }
        self._senml = SenmlParser(kinds)
        self._csv = CsvSplitter(csv_columns(dataset), {"timestamp": "float", **kinds})

    def process(self, batch: Batch, port: int) -> Output:
        """Return the rows, and dead letters for the rest."""
        messages: Text = batch["message"]
        if self._form == "csv":
            found, status = self._csv.split(messages)
            explain = self._csv.explain
            time_ms = np.asarray(found["timestamp"]).astype(np.int64)
        else:
            time_ms, found, status = self._senml.parse(messages)
            explain = self._senml.explain
        columns: dict[str, Column] = {"msg": batch["msg"], "timestamp": time_ms}
        for name in (self._dataset.id, *self._dataset.meta):
            columns[name] = Text(*found[name])
        for name in self._dataset.numbers:
            columns[name] = np.asarray(found[name]).astype(np.float32)
        rows = Batch(columns, batch.length, batch.stamps)
        if not status.any():
            return self.spread(rows)
        bad = status != 0
        letters = dead_letters(self._step, [explain(int(s)) for s in status[bad]], batch.filter(bad))
        return [(0, self.spread(rows.filter(~bad))), (DEAD, letters)]

    def spread(self, rows: Batch) -> Batch:
        """Return what goes out for these rows: themselves."""
        return rows


class ParseObservations(ParseRows):
    """Like `ParseRows`, but each message becomes one record for each of `observed`, in that order."""

    def __init__(
        self, dataset: Dataset, observed: Sequence[str], form: Form = "senml", step: str = "parse"
    ) -> None:
        super().__init__(dataset, form, step)
        self._observed = tuple(observed)

    def spread(self, rows: Batch) -> Batch:
        """Return the observations of all rows, message by message."""
        many = len(self._observed)
        repeat = np.repeat(np.arange(rows.length), many)
        values = np.zeros((rows.length, many), np.float32)
        for k, name in enumerate(self._observed):
            if name != self._dataset.id:
                values[:, k] = rows[name]
        columns: dict[str, Column] = {
            name: rows[name][repeat] for name in ("msg", "timestamp", self._dataset.id, *self._dataset.meta)
        }
        columns["obs"] = np.tile(np.arange(many), rows.length)
        columns["value"] = values.ravel()
        return Batch(columns, len(repeat), rows.stamps[repeat])


def csv_columns(dataset: Dataset) -> list[str]:
    """Return the columns of the joined and annotated row, in the order of the benchmark's files."""
    names = [entry.name for entry in dataset.fields]
    before = 0 if dataset.name == "CITY" else 3 if dataset.name == "TAXI" else 1
    return [*names[:before], "timestamp", *names[before:], *dataset.notes]
