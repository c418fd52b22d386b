"""Training: rows read from a table, labelled, and made into models that are stored and announced."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Text, concat
from headwater.data.schema import Schema
from headwater.data.text_format import TextFormat
from headwater.errors import InputError, ModelError
from headwater.models.model import Model, save
from headwater.models.predict import apply_each
from headwater.operators import DEAD, Operator, Output
from headwater.operators.operator import dead_letters
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.kernels.csv import CsvSplitter
from headwater_bench.riot.labels import CLASSES, quartile_classes
from headwater_bench.riot.parse import csv_columns
from headwater_bench.riot.train_regression import train_regression
from headwater_bench.riot.train_tree import train_tree

TRIGGERS = Schema.of({"msg": int, "rowstart": int, "rowend": int})
ROWS = Schema.of({"msg": int, "rowend": int, "rows": str})
TRAINED = Schema.of({"msg": int, "kind": str, "model": str})


class Table:
    """Lines of CSV in memory, of which ranges are read without copying more than them."""

    def __init__(self, raw: bytes) -> None:
        body = raw if raw.endswith(b"\n") or not raw else raw + b"\n"
        self.data = np.frombuffer(body, np.uint8)
        self.ends = np.concatenate([[0], np.flatnonzero(self.data == 10) + 1])

    @classmethod
    def read(cls, path: Path) -> Table:
        """Read a file."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise InputError(f"cannot read table {path}: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self.ends) - 1

    def rows(self, skip: int, count: int) -> bytes:
        """Return so many lines after the first `skip`, or as many as there are."""
        first = min(max(skip, 0), len(self))
        last = min(first + max(count, 0), len(self))
        return self.data[self.ends[first] : self.ends[last]].tobytes()


class ReadTable(Operator):
    """Answers a trigger with the rows between `rowstart` and `rowend`, as one text of lines."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def process(self, batch: Batch, port: int) -> Output:
        """Return the rows of each trigger."""
        ranges = zip(batch["rowstart"].tolist(), batch["rowend"].tolist(), strict=True)
        texts = Text.of_bytes([self._table.rows(start, end - start - 1) for start, end in ranges])
        return batch.of_columns({"msg": batch["msg"], "rowend": batch["rowend"], "rows": texts})


def lines_of(rows: bytes) -> Text:
    """Return lines, each ended by a line feed, as a text column."""
    data = np.frombuffer(rows, np.uint8)
    ends = np.flatnonzero(data == 10)
    # Texts of a column touch each other; so the line feeds are taken out, not skipped.
    offsets = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int32)
    return Text(data[data != 10], offsets)


def single_lines(batch: Batch) -> Batch:
    """Return one record for each row that the records hold."""
    rows = [lines_of(raw) for raw in batch["rows"].bytes_list()]
    whose = np.repeat(np.arange(batch.length), [len(lines) for lines in rows])
    texts = concat(rows) if rows else Text.of([])
    return Batch({"msg": batch["msg"][whose], "row": texts}, len(whose), batch.stamps[whose])


class _OverRows(Operator):
    """Does something with the rows of each record; what cannot be done is a dead letter."""

    def __init__(self, dataset: Dataset, step: str, *, labelled: bool = False) -> None:
        self.dataset, self._step = dataset, step
        names = [*csv_columns(dataset), *(["label"] if labelled else [])]
        kinds: dict[str, Any] = dict.fromkeys(dataset.features, "float")
        self._splitter = CsvSplitter(names, kinds | ({"label": "text"} if labelled else {}))

    def process(self, batch: Batch, port: int) -> Output:
        """Return one record for each that could be worked on."""
        raw, ends = batch["rows"].bytes_list(), batch["rowend"].tolist()
        results, rows, errors, bad = apply_each(lambda i: self.one(raw[i], ends[i]), len(raw))
        outputs: list[tuple[int, Batch]] = []
        if rows:
            outputs.append((0, self.finished(batch.take(np.array(rows)), results)))
        if bad:
            # the rows themselves can be found again by their range; as a letter they would be huge
            short = batch.take(np.array(bad)).with_columns({"rows": Text.of([""] * len(bad))})
            outputs.append((DEAD, dead_letters(self._step, errors, short)))
        return outputs

    @abstractmethod
    def one(self, raw: bytes, rowend: int) -> bytes:
        """Work on the rows of one record; a text comes out."""

    @abstractmethod
    def finished(self, batch: Batch, results: list[bytes]) -> Batch:
        """Make the records that go out."""

    def features(self, lines: Text) -> tuple[Array, dict[str, Any]]:
        """Return the rows as a matrix with one row for each feature, and all columns."""
        columns, status = self._splitter.split(lines)
        if not len(lines):
            raise ModelError("there are no rows to learn from")
        if status.any():
            row = int(np.flatnonzero(status)[0])
            raise ModelError(f"row {row + 1} of {len(lines)}: {self._splitter.explain(int(status[row]))}")
        return np.array([columns[name] for name in self.dataset.features], np.float64), columns


class LabelRows(_OverRows):
    """Appends to each row where its last feature stands among those of all rows: BAD to EXCELLENT."""

    def __init__(self, dataset: Dataset, step: str = "annotate") -> None:
        super().__init__(dataset, step)
        self._format = TextFormat([b"", b",", b"\n"], escape=False)
        self._classes = Text.of(CLASSES)

    def one(self, raw: bytes, rowend: int) -> bytes:
        """Return the rows with their labels."""
        lines = lines_of(raw)
        features, _ = self.features(lines)
        return self._format.format([lines, self._classes.take(quartile_classes(features[-1]))]).data.tobytes()

    def finished(self, batch: Batch, results: list[bytes]) -> Batch:
        """Return the records with labelled rows."""
        return batch.with_columns({"rows": Text.of_bytes(results)})


class _Train(_OverRows):
    """Trains a model on the rows of each record, stores it in a folder and puts out its file name."""

    kind = ""

    def __init__(self, dataset: Dataset, folder: Path, step: str, *, labelled: bool) -> None:
        super().__init__(dataset, step, labelled=labelled)
        self._folder = folder

    def one(self, raw: bytes, rowend: int) -> bytes:
        """Train, store, and return the file name."""
        name = f"{self.dataset.name}-{self.kind}-{rowend}.model"
        save(self.model(lines_of(raw)), self._folder / name)
        return name.encode()

    @abstractmethod
    def model(self, lines: Text) -> Model:
        """Train a model on rows."""

    def finished(self, batch: Batch, results: list[bytes]) -> Batch:
        """Return the announcements."""
        kind = Text.of([self.kind] * batch.length)
        return batch.of_columns({"msg": batch["msg"], "kind": kind, "model": Text.of_bytes(results)})


class TrainTree(_Train):
    """Trains a decision tree on labelled rows."""

    kind = "DTC"

    def __init__(self, dataset: Dataset, folder: Path, step: str = "dtt") -> None:
        super().__init__(dataset, folder, step, labelled=True)

    def model(self, lines: Text) -> Model:
        """Train a tree."""
        features, columns = self.features(lines)
        number_of = {name: number for number, name in enumerate(CLASSES)}
        labels = Text(*columns["label"]).tolist()
        strange = sorted(set(labels) - set(number_of))
        if strange:
            raise ModelError(f"expected labels {list(CLASSES)}; got {strange[0]!r}")
        classes = np.array([number_of[label] for label in labels])
        return train_tree(features, classes, list(self.dataset.features), list(CLASSES))


class TrainRegression(_Train):
    """Trains a regression of the last feature on the others."""

    kind = "MLR"

    def __init__(self, dataset: Dataset, folder: Path, step: str = "mlt") -> None:
        super().__init__(dataset, folder, step, labelled=False)

    def model(self, lines: Text) -> Model:
        """Train a regression."""
        features, _ = self.features(lines)
        return train_regression(features[:-1].copy(), features[-1], list(self.dataset.features))
