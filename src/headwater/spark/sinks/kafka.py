"""Kafka, through Spark's own connector: at least once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headwater.flow.batch import Batch
from headwater.flow.schema import Schema
from headwater.io.kafka import Kafka
from headwater.io.mqtt import text_column
from headwater.io.records import json_lines
from headwater.spark.sinks.journal import Journal
from headwater.spark.sources.kafka import connected


class KafkaSink:
    """Sends the records of a micro-batch together, and takes note when the cluster has them."""

    def __init__(self, sink: Kafka, schema: Schema, folder: Path) -> None:
        self._sink, self._schema = sink, schema
        self._text = text_column(schema, ()) if sink.payload == "text" else None
        self._journal = Journal(folder / "written")
        self._values: list[bytes] = []

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written."""
        self._values = []
        return batch_id > self._journal.batch

    def write(self, batch: Batch) -> None:
        """Take some of its records."""
        self._values += json_lines(batch, self._schema) if self._text is None else batch[self._text].bytes_list()

    def commit(self, batch_id: int) -> None:
        """Send them all."""
        from headwater.spark.session import session

        if self._values:
            spark = session()
            rows = spark.createDataFrame(pa.table({"value": pa.array(self._values, pa.binary())}))
            writer = rows.write.format("kafka").options(topic=self._sink.topic, **self._sink.options)
            connected(spark, writer.save)
        self._journal.write(batch_id)

    def close(self) -> None:
        """Nothing is open."""
