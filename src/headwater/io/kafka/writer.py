"""Writing to a topic."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.kafka.client import explained, settings
from headwater.io.kafka.endpoint import Kafka
from headwater.io.kafka.form import Form
from headwater.io.sifting import sifted

_FULL_S = 0.01


class Sending:
    """Hands records to a producer, which sends them in the background."""

    def __init__(self, sink: Kafka, schema: Schema) -> None:
        self._sink, self._form = sink, Form(sink, schema, ())
        self.failed: list[Any] = []  #: what the producer gave up since this was emptied

    def send(self, producer: Producer, batch: Batch) -> Refused:
        """Send what can be; return what never can."""
        form = self._form
        (values, keys, headers), kept, refused = sifted(
            batch, lambda part: (form.values(part), form.keys(part), form.headers(part))
        )
        rows = [row for row in range(batch.length) if row not in refused]
        for row, value, key, header in zip(rows[: kept.length], values, keys, headers, strict=True):
            why = self._produce(producer, value, key, header)
            if why:
                refused[row] = why
        producer.poll(0)
        return refused

    def _produce(self, producer: Producer, value: bytes, key: bytes | None, headers: Any) -> str:
        """Send one record; return why it never can be."""
        until = time.monotonic() + self._sink.patience_s
        while True:
            try:
                producer.produce(self._sink.topic, value, key, headers=headers or [], on_delivery=self._heard)
                return ""
            except BufferError:  # so many wait for the cluster
                if time.monotonic() > until:
                    raise InputError(f"cannot write {self._sink}: its buffer is full; is the cluster there?") from None
                producer.poll(_FULL_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                return f"cannot write {self._sink}: {len(value):,} bytes are more than its largest message"

    def _heard(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)


class KafkaWriter:
    """An open topic; records are sent in the background, each once as long as this process lives."""

    def __init__(self, sink: Kafka, schema: Schema) -> None:
        self._sink, self._sending = sink, Sending(sink, schema)
        limits = {"enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings(sink, **limits))
        try:
            self._producer.list_topics(sink.topic, timeout=sink.patience_s)
        except KafkaException as error:
            raise explained(sink, "write", error) from None

    def write(self, batch: Batch) -> Refused:
        """Take records; while too many wait this waits, for a while."""
        try:
            return self._sending.send(self._producer, batch)
        except KafkaException as error:
            raise explained(self._sink, "write", error) from None

    def flush(self) -> None:
        """Wait until the cluster has all records."""
        left = self._producer.flush(self._sink.patience_s)
        failed, self._sending.failed = self._sending.failed, []
        if failed:
            raise InputError(f"{explained(self._sink, 'write', failed[0])}", records=len(failed))
        if left:
            raise InputError(f"cannot write {self._sink}: {left} records wait for the cluster", records=left)

    def close(self) -> None:
        """Wait for what is on its way."""
        self.flush()
