"""Records as JSON texts, a batch at a time."""

from __future__ import annotations

import msgspec
import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Column, Nullable, Text, parts
from headwater.data.schema import Schema
from headwater.data.text_format import TextFormat
from headwater.io.records import json_lines, short_floats

_encode = msgspec.json.Encoder().encode
_COMMA = ord(",")
_PLAIN = {"bool", "int", "float", "float32", "text"}  # moments and objects have more to them


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
            quote = b'"' if kind == "text" else b""
            pieces.append(before + _encode(name) + b":" + quote)
            before = quote + b","
        self._format = TextFormat([*pieces, before[:-1] + b"}"], escape=True)

    def of(self, batch: Batch) -> Text:
        """Return a text for each record; raises InputError if one has no JSON form."""
        if not self._plain or not batch.length or any(map(_lacks_texts, batch.columns.values())):
            return Text.of_bytes(json_lines(batch, self._schema))
        texts = [_texts(batch[name], kind == "float32") for name, kind in self._schema.fields]
        return Text(*self._format.format(texts))


def _lacks_texts(column: Column) -> bool:
    """Tell whether texts are missing: null has no quotes."""
    return isinstance(column, Nullable) and isinstance(column.values, Text) and not column.valid.all()


def _texts(column: Column, short: bool) -> Text:
    """Return what stands in the JSON for each value: all are encoded at once, as a list, and cut at its commas."""
    values = parts(column)[0]
    if isinstance(values, Text):
        return values
    data = np.frombuffer(bytearray(_encode(short_floats(column) if short else column.tolist())), np.uint8)[1:-1]
    commas = np.flatnonzero(data == _COMMA)
    offsets = np.empty(len(commas) + 2, np.int32)
    offsets[0], offsets[-1] = 0, len(data) - len(commas)
    offsets[1:-1] = commas - np.arange(len(commas))
    return Text(data[data != _COMMA], offsets)
