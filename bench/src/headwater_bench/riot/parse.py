"""Messages taken apart: SenML or CSV into one row for each message, or one record for each observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headwater.clock import latest_ns
from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Column, Text
from headwater.data.schema import Schema
from headwater.io.senml.columns import SenmlParser, ValueType
from headwater.operators import DEAD, Operator, Output
from headwater.operators.operator import dead_letters
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.kernels.csv import CsvSplitter
from headwater_bench.riot.kernels.xml import XmlParser


def row_schema(dataset: Dataset) -> Schema:
    """Return the columns of a whole message: number, time, id, meta data and all numbers."""
    texts = dict.fromkeys((dataset.id, *dataset.meta), "text")
    return Schema.of({"msg": int, "timestamp": int, **texts, **dict.fromkeys(dataset.numbers, "float32")})


def observation_schema(dataset: Dataset) -> Schema:
    """Return the columns of one observation: `obs` is its place in `dataset.observed`."""
    texts = dict.fromkeys((dataset.id, *dataset.meta), "text")
    return Schema.of({"msg": int, "timestamp": int, **texts, "obs": int, "value": "float32"})


class ParseRows(Operator):
    """SenML in, one row for each message out; what is not a message is a dead letter.

    So is a message from a clock that runs more than a minute ahead: it would end windows of time too early.
    With `csv`, a message that begins like a number is a line of CSV, with the columns of the joined and
    annotated row: the form in which the benchmark feeds STATS.
    """

    def __init__(self, dataset: Dataset, *, csv: bool = False, step: str = "parse") -> None:
        self._dataset, self._step, self._reads_csv = dataset, step, csv
        texts = (dataset.id, *dataset.meta)
        kinds: dict[str, ValueType] = {
            entry.name: "text" if entry.name in texts else "float" for entry in dataset.fields
        }
        self._senml = SenmlParser(kinds)
        self._csv = CsvSplitter(csv_columns(dataset), {"timestamp": "float", **kinds})

    def process(self, batch: Batch, port: int) -> Output:
        """Return the rows, and dead letters for the rest."""
        outputs = self.rows(batch)
        outputs[0] = 0, self.spread(outputs[0][1])
        return outputs if len(outputs) > 1 else outputs[0][1]

    def rows(self, batch: Batch) -> list[tuple[int, Batch]]:
        """Return the rows, first of all, and dead letters for what is none."""
        if not self._reads_csv:
            return self._rows(batch, is_csv=False)
        is_csv = _begin_like_csv(batch["message"])
        if is_csv.all() or not is_csv.any():
            return self._rows(batch, is_csv=bool(is_csv.any()))
        csv, senml = self._rows(batch.filter(is_csv), True), self._rows(batch.filter(~is_csv), False)
        return [(0, concat_batches([csv[0][1], senml[0][1]])), *csv[1:], *senml[1:]]

    def _rows(self, batch: Batch, is_csv: bool) -> list[tuple[int, Batch]]:
        messages: Text = batch["message"]
        if is_csv:
            columns, status = self._csv.split(messages)
            explain = self._csv.explain
            time_ms = np.asarray(columns["timestamp"]).astype(np.int64)
        else:
            time_ms, columns, status = self._senml.parse(messages)
            explain = self._senml.explain
        rows = _rows(self._dataset, batch, time_ms, columns)
        ahead = clocks_ahead(time_ms)
        if ahead is None and not status.any():
            return [(0, rows)]
        bad = status != 0 if ahead is None else (status != 0) | ahead
        reasons = [explain(int(s)) if s else AHEAD for s in status[bad]]
        letters = dead_letters(self._step, reasons, batch.filter(bad))
        return [(0, rows.filter(~bad)), (DEAD, letters)]

    def spread(self, rows: Batch) -> Batch:
        """Return what goes out for these rows: themselves."""
        return rows


class ParseXml(Operator):
    """SenML written as XML in, one row for each message out; what is not a message is a dead letter."""

    def __init__(self, dataset: Dataset, step: str = "parse") -> None:
        self._dataset, self._step = dataset, step
        texts = (dataset.id, *dataset.meta)
        self._parser = XmlParser({entry.name: "text" if entry.name in texts else "float" for entry in dataset.fields})

    def process(self, batch: Batch, port: int) -> Output:
        """Return the rows, and dead letters for the rest."""
        columns, time_ms, errors = self._parser.parse(batch["message"])
        rows = _rows(self._dataset, batch, time_ms, columns)
        ahead = clocks_ahead(time_ms)
        if ahead is not None:
            errors = [error or (AHEAD if early else "") for error, early in zip(errors, ahead.tolist(), strict=True)]
        bad = np.array([error != "" for error in errors], np.bool_)
        if not bad.any():
            return rows
        letters = dead_letters(self._step, [error for error in errors if error], batch.filter(bad))
        return [(0, rows.filter(~bad)), (DEAD, letters)]


class ParseObservations(ParseRows):
    """Like `ParseRows`, but each message becomes one record for each of `observed`, in that order."""

    def __init__(self, dataset: Dataset, observed: Sequence[str], *, csv: bool = False, step: str = "parse") -> None:
        super().__init__(dataset, csv=csv, step=step)
        self._observed = tuple(observed)

    def spread(self, rows: Batch) -> Batch:
        """Return the observations of all rows, message by message."""
        many = len(self._observed)
        values = np.zeros((rows.length, many), np.float32)
        for k, name in enumerate(self._observed):
            if name != self._dataset.id:
                values[:, k] = rows[name]
        repeat = np.repeat(np.arange(rows.length), many)
        columns: dict[str, Column] = {name: np.repeat(rows[name], many) for name in ("msg", "timestamp")}
        for name in (self._dataset.id, *self._dataset.meta):
            columns[name] = rows[name].take(repeat)
        columns["obs"] = np.tile(np.arange(many), rows.length)
        columns["value"] = values.ravel()
        return Batch(columns, len(repeat), np.repeat(rows.stamps, many, axis=0))


_AHEAD_MS = 60_000  #: how far a sensor's clock may run before ours; as much as event time allows
AHEAD = "the message's time is more than 1 min ahead of this machine's clock"


def clocks_ahead(time_ms: Array) -> Array | None:
    """Return which messages were written by a clock that runs too far ahead, or None when none was."""
    limit = latest_ns() // 1_000_000 + _AHEAD_MS
    return time_ms > limit if len(time_ms) and time_ms.max() > limit else None


def _begin_like_csv(messages: Text) -> Array:
    first = np.minimum(messages.offsets[:-1], max(len(messages.data) - 1, 0))
    letters = messages.data[first] if len(messages.data) else np.zeros(len(messages), np.uint8)
    return (letters >= ord("0")) & (letters <= ord("9")) & (messages.lengths() > 0)


def csv_columns(dataset: Dataset) -> list[str]:
    """Return the columns of the joined and annotated row, in the order of the benchmark's files."""
    names = [entry.name for entry in dataset.fields]
    before = 0 if dataset.name == "CITY" else 3 if dataset.name == "TAXI" else 1
    return [*names[:before], "timestamp", *names[before:], *dataset.notes]


def _rows(dataset: Dataset, batch: Batch, time_ms: Array, parsed: Mapping[str, Any]) -> Batch:
    """Return the messages of a batch as rows, by what a parser found in them."""
    columns: dict[str, Column] = {"msg": batch["msg"], "timestamp": time_ms}
    for name in (dataset.id, *dataset.meta):
        columns[name] = Text(*parsed[name])
    for name in dataset.numbers:
        columns[name] = np.asarray(parsed[name]).astype(np.float32)
    return Batch(columns, batch.length, batch.stamps)
