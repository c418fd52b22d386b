"""Kafka, through Spark's own connector: at least once, the records of a key in order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headwater.data.batch import Batch
from headwater.data.column import Text, parts
from headwater.data.schema import Schema
from headwater.flow.endpoints import Refused
from headwater.flow.flow import Flow
from headwater.flow.steps import Input, Step
from headwater.io.kafka import Kafka
from headwater.io.mqtt import text_column
from headwater.io.records import json_lines, json_texts
from headwater.io.sifting import sifted
from headwater.spark.sinks.journal import Journal
from headwater.spark.sources.kafka import connected


def key_before(flow: Flow, step: Step) -> tuple[str, ...]:
    """Return the columns of the last `key_by` before a sink, if its records still have all of them."""
    given = step.inputs[0]
    keys = _keys_of(flow, given)
    return keys if all(name in given.schema for name in keys) else ()


def _keys_of(flow: Flow, stream: Input) -> tuple[str, ...]:
    maker = flow.steps[stream.step]
    found = {given.keys or _keys_of(flow, given) for given in maker.inputs}
    return found.pop() if len(found) == 1 else ()


class Form:
    """How records become keys and values."""

    def __init__(self, sink: Kafka, schema: Schema, key: tuple[str, ...]) -> None:
        self.key = key if sink.key is None else sink.key
        for name in self.key:
            schema.type_of(name, what=f"the key of {sink}")
        self._schema, self._of_key = schema, schema.only(self.key)
        self._text = text_column(schema, sink.key or ()) if sink.payload == "text" else None

    def values(self, batch: Batch) -> list[bytes]:
        """Return what each record says."""
        return json_lines(batch, self._schema) if self._text is None else batch[self._text].bytes_list()

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


class KafkaSink:
    """Sends the records of a micro-batch together, and takes note when the cluster has them."""

    def __init__(self, sink: Kafka, schema: Schema, folder: Path, key: tuple[str, ...] = ()) -> None:
        self._sink, self._form = sink, Form(sink, schema, key)
        self._journal = Journal(folder / "written")
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written."""
        self._keys, self._values = [], []
        return batch_id > self._journal.batch

    def write(self, batch: Batch) -> Refused:
        """Take some of its records."""
        (values, keys), _, refused = sifted(batch, lambda batch: (self._form.values(batch), self._form.keys(batch)))
        self._values += values
        self._keys += keys
        return refused

    def commit(self, batch_id: int) -> None:
        """Send them all, by one task: two would send records of one key in any order."""
        from headwater.spark.session import session

        if self._values:
            spark = session()
            columns = {"key": pa.array(self._keys, pa.binary()), "value": pa.array(self._values, pa.binary())}
            rows = spark.createDataFrame(pa.table(columns)).coalesce(1)
            writer = rows.write.format("kafka").options(topic=self._sink.topic, **self._sink.options)
            connected(spark, writer.save)
        self._journal.write(batch_id)

    def close(self) -> None:
        """Nothing is open."""
