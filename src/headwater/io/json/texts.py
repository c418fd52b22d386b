"""Records as JSON texts, a batch at a time."""

from __future__ import annotations

import msgspec
import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Column, Text, parts
from headwater.data.schema import Schema, Type
from headwater.data.text_format import TextFormat
from headwater.data.timestamps import FIRST_US, LAST_US, moments_as_text
from headwater.io.records import json_lines, short_floats

_encode = msgspec.json.Encoder().encode
_COMMA = ord(",")
_PLAIN = {"bool", "int", "float", "float32", "text", "time"}  # objects have more to them
_QUOTED = {"text", "time"}


class JsonTexts:
    """Writes records of one schema as JSON objects, as `json_lines` does.

    >>> from headwater.data.schema import Schema
    >>> schema = Schema.of({"id": str, "x": float})
    >>> JsonTexts(schema).of(Batch.of({"id": ['a"', "b"], "x": [0.5, None]}, schema)).tolist()
    ['{"id":"a\\\\"","x":0.5}', '{"id":"b","x":null}']
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._plain = bool(schema.fields) and all(kind in _PLAIN for _, kind in schema.fields)
        pieces, before = [], b"{"
        for name, kind in schema.fields:
            quote = b'"' if kind in _QUOTED else b""
            pieces.append(before + _encode(name) + b":" + quote)
            before = quote + b","
        self._format = TextFormat([*pieces, before[:-1] + b"}"], escape=True)

    def of(self, batch: Batch) -> Text:
        """Return a text for each record; raises InputError if one has no JSON form."""
        fields = [(batch[name], kind) for name, kind in self._schema.fields]
        if (
            not self._plain
            or not batch.length
            or any(not _is_quoted(column) for column, kind in fields if kind in _QUOTED)
        ):
            return Text.of_bytes(json_lines(batch, self._schema))
        return Text(*self._format.format([_texts(*field) for field in fields]))


def join(texts: Text, between: bytes) -> bytes:
    """Return all texts in a row, with one byte between each two.

    >>> join(Text.of(["{}", "{}"]), b",")
    b'{},{}'
    """
    start, stop = int(texts.offsets[0]), int(texts.offsets[-1])
    return np.insert(texts.data[start:stop], texts.offsets[1:-1] - start, between[0]).tobytes()


def _is_quoted(column: Column) -> bool:
    """Tell whether all values stand in quotes: null has none, nor has a moment beyond what ISO text holds."""
    values, valid = parts(column)
    if valid is not None and not valid.all():
        return False
    return isinstance(values, Text) or bool(np.all((values >= FIRST_US) & (values <= LAST_US)))


def _texts(column: Column, kind: Type) -> Text:
    """Return what stands in the JSON for each value: all are encoded at once, as a list, and cut at its commas."""
    values = parts(column)[0]
    if isinstance(values, Text):
        return values
    if kind == "time":
        return Text.of(moments_as_text(values))
    data = np.frombuffer(bytearray(_encode(short_floats(column) if kind == "float32" else column.tolist())), np.uint8)[
        1:-1
    ]
    commas = np.flatnonzero(data == _COMMA)
    offsets = np.empty(len(commas) + 2, np.int32)
    offsets[0], offsets[-1] = 0, len(data) - len(commas)
    offsets[1:-1] = commas - np.arange(len(commas))
    return Text(data[data != _COMMA], offsets)
