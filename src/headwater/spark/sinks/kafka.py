"""Kafka: the records of a micro-batch together, those of a key in order.

With the client library that the engine uses, exactly once (see `kafka_transactions`); through Spark's own connector, which
has no transactions, at least once.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec

import pyarrow as pa

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Ledger, NumberedWriter, Refused
from headwater.io.kafka import Kafka
from headwater.io.kafka.form import Form
from headwater.io.sifting import sift
from headwater.io.transactions.journal import Journal
from headwater.spark.sources.kafka import connected

log = logging.getLogger(__name__)

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class KafkaWriting:
    """How Spark writes a topic."""

    way = "written by the driver"

    def __init__(self, sink: Kafka) -> None:
        self._sink = sink

    @property
    def guarantee(self) -> str:
        """What holds after a kill: it depends on what is installed."""
        return "at least once" if _why_no_transactions(self._sink) else "exactly once"

    def check(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Raise if the columns make no keys and values."""
        self._sink.check_on_spark()
        self._sink.check_write(schema)
        Form(self._sink, schema, key)

    def open(self, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> NumberedWriter:
        """Start sending."""
        why_not = _why_no_transactions(self._sink)
        if why_not:
            log.warning("after a kill, records may be in %s twice: %s", self._sink, why_not)
            return KafkaSink(self._sink, schema, ledger, key)
        from headwater.spark.sinks.kafka_transactions import KafkaTransactions

        return KafkaTransactions(self._sink, schema, ledger, key)


def _why_no_transactions(sink: Kafka) -> str:
    if find_spec("confluent_kafka") is None:
        return "transactions need confluent-kafka where the driver runs: pip install 'headwater[kafka]'"
    from headwater.io.kafka.client import unknown_option

    unknown = unknown_option(sink)
    return unknown and f"transactions need options that confluent-kafka knows ({unknown})"


class KafkaSink(NumberedWriter):
    """Sends the records of a micro-batch by Spark's own connector, and takes note when the cluster has them."""

    def __init__(self, sink: Kafka, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> None:
        self._sink, self._form = sink, Form(sink, schema, key)
        self._journal = Journal.of(ledger)
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []
        self._headers: list[list[tuple[str, bytes]] | None] = []

    @property
    def committed(self) -> int:
        """The last micro-batch that the cluster has."""
        return self._journal.committed

    def rollback(self) -> None:
        """Forget what was not sent."""
        self._keys, self._values, self._headers = [], [], []

    def write(self, batch: Batch) -> Refused:
        """Take some of its records."""
        (values, keys, headers), _, refusals = sift(
            batch, lambda batch: (self._form.values(batch), self._form.keys(batch), self._form.headers(batch))
        )
        self._values += values
        self._keys += keys
        self._headers += headers
        return refusals

    def commit(self, number: int) -> None:
        """Send them all, by one task: two would send records of one key in any order."""
        from headwater.spark.session import session

        if self._values:
            spark = session()
            columns = {"key": pa.array(self._keys, pa.binary()), "value": pa.array(self._values, pa.binary())}
            if self._sink.headers is not None:
                columns["headers"] = pa.array([_with_names(each) for each in self._headers], _HEADERS)
            rows = spark.createDataFrame(pa.table(columns)).coalesce(1)
            options = {"topic": self._sink.topic, "includeHeaders": "true", **self._sink.options}
            writer = rows.write.format("kafka").options(**options)
            connected(spark, writer.save)
        self._journal.commit(number)
        self.rollback()

    def close(self) -> None:
        """Nothing is open."""


def _with_names(headers: list[tuple[str, bytes]] | None) -> list[dict[str, str | bytes]] | None:
    return None if headers is None else [{"key": name, "value": value} for name, value in headers]
