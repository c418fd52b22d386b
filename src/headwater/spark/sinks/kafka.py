"""Kafka, through Spark's own connector: at least once, the records of a key in order."""

from __future__ import annotations

import pyarrow as pa

from headwater.data.batch import Batch
from headwater.data.column import Text, parts
from headwater.data.schema import Schema
from headwater.flow.endpoints import Ledger, NumberedWriter, Refused
from headwater.io.kafka import Kafka
from headwater.io.mqtt import text_column
from headwater.io.records import json_lines, json_texts
from headwater.io.sifting import sifted
from headwater.io.transactions.journal import Journal
from headwater.spark.sources.kafka import connected


class KafkaWriting:
    """How Spark writes a topic."""

    way = "written by the driver"
    guarantee = "at least once"

    def __init__(self, sink: Kafka) -> None:
        self._sink = sink

    def check(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Raise if the columns make no keys and values."""
        Form(self._sink, schema, key)

    def open(self, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> KafkaSink:
        """Start sending."""
        return KafkaSink(self._sink, schema, ledger, key)


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


class KafkaSink(NumberedWriter):
    """Sends the records of a micro-batch together, and takes note when the cluster has them."""

    def __init__(self, sink: Kafka, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> None:
        self._sink, self._form = sink, Form(sink, schema, key)
        self._journal = Journal.of(ledger)
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []

    @property
    def committed(self) -> int:
        """The last micro-batch that the cluster has."""
        return self._journal.committed

    def rollback(self) -> None:
        """Forget what was not sent."""
        self._keys, self._values = [], []

    def write(self, batch: Batch) -> Refused:
        """Take some of its records."""
        (values, keys), _, refused = sifted(batch, lambda batch: (self._form.values(batch), self._form.keys(batch)))
        self._values += values
        self._keys += keys
        return refused

    def commit(self, number: int) -> None:
        """Send them all, by one task: two would send records of one key in any order."""
        from headwater.spark.session import session

        if self._values:
            spark = session()
            columns = {"key": pa.array(self._keys, pa.binary()), "value": pa.array(self._values, pa.binary())}
            rows = spark.createDataFrame(pa.table(columns)).coalesce(1)
            writer = rows.write.format("kafka").options(topic=self._sink.topic, **self._sink.options)
            connected(spark, writer.save)
        self._journal.commit(number)
        self.rollback()

    def close(self) -> None:
        """Nothing is open."""
