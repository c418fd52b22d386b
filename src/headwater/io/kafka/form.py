"""Records as what Kafka holds: a key and a value, both bytes."""

from __future__ import annotations

from headwater.data.batch import Batch
from headwater.data.column import Text, parts
from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.io.kafka.endpoint import Kafka
from headwater.io.mqtt import text_column
from headwater.io.records import json_lines, json_texts


class Form:
    """How records become keys and values."""

    def __init__(self, sink: Kafka, schema: Schema, key: tuple[str, ...]) -> None:
        self.key = key if sink.key is None else sink.key
        for name in self.key:
            schema.type_of(name, what=f"the key of {sink}")
        self._headers = sink.headers
        if sink.headers is not None and schema.type_of(sink.headers, what=f"the headers of {sink}") != "any":
            raise FlowError(
                f"the headers of {sink} are a column of objects; {sink.headers!r} is {schema[sink.headers]}"
            )
        self._schema = schema.only(tuple(name for name in schema if name != sink.headers))
        self._of_key = schema.only(self.key)
        self._text = text_column(schema, sink.key or ()) if sink.payload == "text" else None

    def values(self, batch: Batch) -> list[bytes]:
        """Return what each record says."""
        return json_lines(batch, self._schema) if self._text is None else batch[self._text].bytes_list()

    def headers(self, batch: Batch) -> list[list[tuple[str, bytes]] | None]:
        """Return each record's headers."""
        if self._headers is None:
            return [None] * batch.length
        return [
            [(name, str(value).encode()) for name, value in fields.items()] if isinstance(fields, dict) else None
            for fields in batch[self._headers].tolist()
        ]

    def keys(self, batch: Batch) -> list[bytes | None]:
        """Return each record's key; None where it has none, or a missing one."""
        if not self.key:
            return [None] * batch.length
        columns = {name: batch[name] for name in self.key}
        if len(columns) > 1:
            return list(json_lines(Batch(columns, batch.length, batch.stamps), self._of_key))
        [(name, column)] = columns.items()
        if self._of_key[name] != "text":
            return [None if text is None else text.encode() for text in json_texts(column)]
        texts, valid = parts(column)
        assert isinstance(texts, Text)
        there = [True] * batch.length if valid is None else valid.tolist()
        return [text if has else None for text, has in zip(texts.bytes_list(), there, strict=True)]
