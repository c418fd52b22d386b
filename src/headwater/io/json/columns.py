"""JSON texts, a batch at a time, into columns: by a compiled scan where they have the usual form, else one by one."""

from __future__ import annotations

import numpy as np

from headwater.data.column import Array, Column, Text, concat, nullable
from headwater.data.iso_text import read_moments
from headwater.data.jit import COMPILED
from headwater.data.schema import DTYPES, Schema
from headwater.io.json.scan import BOOL, FLOAT, INT, TEXT, scan
from headwater.io.records import JsonDecoder, Refuse
from headwater.io.senml.scan import gather_spans

#: moments are read as texts, or as numbers, by what has come last
_KINDS = {"bool": BOOL, "int": INT, "float": FLOAT, "float32": FLOAT, "text": TEXT, "time": TEXT}
_REST = 100  # batches that are read one by one after one in which the scan was of little use


class JsonColumns:
    """Turns texts into the columns of one schema, with the same answers as `JsonDecoder`, which settles what is unusual.

    >>> columns = JsonColumns(Schema.of({"id": str, "x": float}))
    >>> columns.of(Text.of(['{"id": "a", "x": 1}', '{"id": 2}', '{"x": null}']), refuse=print)
    1 b'{"id": 2}' id: expected text, got int
    ({'id': Nullable(['a', None]), 'x': Nullable([1.0, None])}, array([0, 2]))
    """

    def __init__(self, schema: Schema) -> None:
        self._schema, self._decoder = schema, JsonDecoder(schema)
        self._usual = COMPILED and bool(schema.fields) and all(kind in _KINDS for _, kind in schema.fields)
        self._times = np.array([kind == "time" for _, kind in schema.fields])
        self._set_kinds(np.array([_KINDS.get(kind, TEXT) for _, kind in schema.fields], np.int64))
        names = [name.encode() for name in schema]
        self._names = np.frombuffer(bytearray(b"".join(names)), np.uint8)
        self._ends = np.cumsum([0] + [len(name) for name in names])
        self._rest = 0

    def _set_kinds(self, kinds: Array) -> None:
        self._kinds = kinds
        self._groups = np.array([{BOOL: 0, INT: 0, FLOAT: 1, TEXT: 2}[kind] for kind in kinds.tolist()], np.int64)
        before = [int(np.sum(self._groups[:field] == group)) for field, group in enumerate(self._groups.tolist())]
        self._places = np.array(before, np.int64)  # of each field among those that share an array

    def of(self, texts: Text, refuse: Refuse) -> tuple[dict[str, Column], Array | None]:
        """Return the columns of the texts that are records, and which those are: None where all are."""
        if not self._usual or self._rest > 0:
            self._rest -= 1
            return self._decoder.columns_of(texts, refuse)
        columns, sure = self._scan(texts)
        if self._times.any() and np.sum(sure) * 2 <= len(sure):
            self._set_kinds(np.where(self._times, TEXT + INT - self._kinds, self._kinds))
            columns, sure = self._scan(texts)
        if sure.all():
            return columns, None
        rows, others = np.flatnonzero(sure), np.flatnonzero(~sure)
        if len(others) > len(rows):
            self._rest = _REST
        if not len(rows):
            return self._decoder.columns_of(texts, refuse)
        other_columns, other_rows = self._decoder.columns_of(
            texts.take(others), lambda number, text, reason: refuse(int(others[number]), text, reason)
        )
        rows = np.concatenate([rows, others if other_rows is None else others[other_rows]])
        order = np.argsort(rows)
        merged = {name: concat([columns[name][sure], other_columns[name]])[order] for name in columns}
        return merged, None if len(rows) == len(texts) else rows[order]

    def _scan(self, texts: Text) -> tuple[dict[str, Column], Array]:
        count = len(texts)
        wholes, fractions, words = (int(np.sum(self._groups == group)) for group in range(3))
        whole, floats = np.zeros((wholes, count), np.int64), np.zeros((fractions, count))
        spans, valid = np.zeros((words, count, 2), np.int64), np.zeros((len(self._kinds), count), np.bool_)
        form = (self._names, self._ends, self._kinds, self._places)
        sure = scan(texts.data, texts.offsets, *form, whole, floats, spans, valid)
        columns: dict[str, Column] = {}
        for field, (name, kind) in enumerate(self._schema.fields):
            values: Array | Text
            place = int(self._places[field])
            if self._kinds[field] == TEXT:
                values = Text(*gather_spans(texts.data, spans[place]))
                if kind == "time":
                    values, is_moment = _moments(values)
                    sure &= is_moment | ~valid[field]
            else:
                values = (floats if self._kinds[field] == FLOAT else whole)[place].astype(DTYPES[kind], copy=False)
            columns[name] = nullable(values, valid[field])
        return columns, sure


def _moments(texts: Text) -> tuple[Array, Array]:
    """Return the moments of a column, and which of the texts are some; what they are otherwise, others settle."""
    out, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    read_moments(texts.data, np.ascontiguousarray(texts.offsets), out, valid)
    return out, valid
