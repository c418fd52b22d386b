"""Rows of ETL: observations joined again, annotated, and written as SenML."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Nullable, Text, nullable, parts
from headwater.data.keys import KeyIndex
from headwater.data.text_format import TextFormat, decimal_texts, float32_texts
from headwater.errors import SnapshotError
from headwater.operators import DEAD, Operator, Output
from headwater.operators.operator import Select, dead_letters
from headwater.operators.snapshot import pack_state, unpack_state
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.kernels.pieces import Pieces


class JoinObservations(Operator):
    """Makes one row of the observations of a message, as soon as the last of them is there.

    The texts of the row are those of the last observation; all observations of a message carry the same.
    """

    stateless = False

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        # A missing value travels as NaN, which no message can hold; so one array keeps the whole row.
        self._pieces = Pieces(len(dataset.observed))

    def process(self, batch: Batch, port: int) -> Output:
        """Return the rows that became complete."""
        values, valid = parts(batch["value"])
        assert isinstance(values, np.ndarray)
        if valid is not None:
            values = np.where(valid, values, np.float32(np.nan))
        rows, cells = self._pieces.add(batch["msg"], batch["obs"], values)
        names = ("msg", "timestamp", self._dataset.id, *self._dataset.meta)
        columns: dict[str, Column] = {name: batch[name][rows] for name in names}
        whole = not np.isnan(cells[:, 1:]).any()
        for k, name in enumerate(self._dataset.numbers, 1):
            column = cells[:, k].copy()
            columns[name] = column if whole else nullable(column, ~np.isnan(column))
        return Batch(columns, len(rows), batch.stamps.take(rows, axis=0))

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the messages that are still open."""
        ids, seen, values = self._pieces.open()
        mask = np.ones(len(ids), np.bool_) if select is None else select.rows([ids])
        parts = {"ids": ids[mask], "seen": seen[mask], "values": values[mask]}
        return pack_state("join observations", parts)

    def restore(self, data: bytes) -> None:
        """Take over saved messages."""
        content = unpack_state("join observations", data)
        if content["values"].shape[1:] != (self._pieces.field_count,):
            raise SnapshotError(
                f"a message of {self._dataset.name} has {self._pieces.field_count} observations; "
                f"the snapshot has {content['values'].shape[1]}"
            )
        self._pieces.restore(content["ids"], content["seen"], content["values"])

    def forget(self, select: Select) -> None:
        """Drop the chosen messages."""
        ids, seen, values = self._pieces.open()
        stay = ~select.rows([ids])
        self._pieces = Pieces(self._pieces.field_count)
        self._pieces.restore(ids[stay], seen[stay], values[stay])


class Annotate(Operator):
    """Adds what is known of a row's sensor; an unknown sensor makes the row a dead letter."""

    def __init__(self, dataset: Dataset, notes: Mapping[str, tuple[str, ...]], step: str = "annotate") -> None:
        self._dataset, self._step = dataset, step
        self._ids = KeyIndex("text")
        self._ids.slots([Text.of(notes)])
        self._notes = [Text.of(values) for values in zip(*notes.values(), strict=True)]

    def process(self, batch: Batch, port: int) -> Output:
        """Return the annotated rows."""
        positions = self._ids.find([batch[self._dataset.id]])
        letters = None
        if len(positions) and positions.min() < 0:
            unknown = positions < 0
            ids = batch[self._dataset.id][unknown].tolist()
            reasons = [f"sensor {name!r} is not among the {len(self._ids)} known ones" for name in ids]
            letters = dead_letters(self._step, reasons, batch.filter(unknown))
            batch, positions = batch.filter(~unknown), positions[~unknown]
        annotated = batch.with_columns(
            {name: texts.take(positions) for name, texts in zip(self._dataset.notes, self._notes, strict=True)}
        )
        return annotated if letters is None else [(0, annotated), (DEAD, letters)]


class WriteSenml:
    """Writes annotated rows as SenML messages; a missing value is written `null`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        pieces, before = [], '{"e":['
        for name, unit, kind in self._entries():
            pieces.append(f'{before}{{"{kind}":"')
            before = f'","u":"{unit}","n":"{name}"}},'
        pieces += [before[:-1] + '],"bt":"', '"}']
        self._names = [name for name, _, _ in self._entries()]
        self._format = TextFormat([piece.encode() for piece in pieces], escape=True)

    def _entries(self) -> list[tuple[str, str, str]]:
        entries = [(entry.name, entry.unit, entry.kind) for entry in self._dataset.fields]
        return [*entries, *((name, "string", "sv") for name in self._dataset.notes)]

    def __call__(self, batch: Batch) -> dict[str, Column]:
        """Return the messages."""
        texts = _as_texts([batch[name] for name in self._names])
        texts.append(Text(*decimal_texts(batch["timestamp"].astype(np.float64), 0)))
        return {"senml": Text(*self._format.format(texts))}


def _as_texts(columns: list[Column]) -> list[Text]:
    """Return all columns as texts; the numbers in one go, since a call costs as much as many of them."""
    numbers = [parts(column)[0] for column in columns if not isinstance(column, Text)]
    floats = Text(*float32_texts(np.concatenate(numbers))) if numbers else Text.of([])  # type: ignore[arg-type]
    texts, at = [], 0
    for column in columns:
        if isinstance(column, Text):
            texts.append(column)
            continue
        text = floats[at : at + len(column)]
        at += len(column)
        texts.append(_with_nulls(text, column.valid) if isinstance(column, Nullable) else text)
    return texts


def _with_nulls(text: Text, valid: Array) -> Text:
    both = Text.of_bytes([*text.bytes_list(), b"null"])
    return both.take(np.where(valid, np.arange(len(text)), len(text)))
