"""Writing to a topic."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException, Producer

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.kafka.client import explained, producing
from headwater.io.kafka.endpoint import Kafka
from headwater.io.kafka.form import Form
from headwater.io.sifting import sift

_FULL_S = 0.01
_LARGEST = 1_000_000  #: bytes of a message that the client takes unless told
_AROUND = 100  #: bytes around a message, at most, and around a header

#: what a record becomes: a value, a key and headers
Message = tuple[bytes, bytes | None, list[tuple[str, bytes]] | None]


class Sending:
    """Makes messages of records, and hands them to a producer, which sends them in the background.

    Records are grouped by the columns of `key`, which is theirs in the topic unless that says otherwise.
    """

    def __init__(self, sink: Kafka, schema: Schema, key: tuple[str, ...] = ()) -> None:
        self._sink, self._form = sink, Form(sink, schema, key)
        self._largest = int(sink.options.get("kafka.message.max.bytes", _LARGEST))
        self.failures: list[Any] = []  #: what the producer gave up since this was emptied

    def messages(self, batch: Batch) -> tuple[list[Message], Refused]:
        """Make messages of what can be, in order; return what never can: one that is too large would hold up all others."""
        form = self._form
        columns, records, refusals = sift(batch, lambda part: (form.values(part), form.keys(part), form.headers(part)))
        messages: list[Message] = list(zip(*columns, strict=True))
        large = {at: size for at, message in enumerate(messages) if (size := _size(message)) > self._largest}
        if large:
            rows = [row for row in range(batch.length) if row not in refusals][: records.length]
            refusals |= {rows[at]: f"{size:,} bytes are more than a message may have" for at, size in large.items()}
            messages = [message for at, message in enumerate(messages) if at not in large]
        return messages, refusals

    def send(self, producer: Producer, messages: Iterable[Message]) -> None:
        """Send messages."""
        for message in messages:
            self._produce(producer, *message)
        producer.poll(0)

    def _produce(self, producer: Producer, value: bytes, key: bytes | None, headers: Any) -> None:
        until = time.monotonic() + self._sink.patience_s
        while True:
            try:
                producer.produce(self._sink.topic, value, key, headers=headers or [], on_delivery=self._on_delivery)
                return
            except BufferError:  # so many wait for the cluster
                if time.monotonic() > until:
                    raise InputError(f"cannot write {self._sink}: its buffer is full; is the cluster there?") from None
                producer.poll(_FULL_S)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)


class KafkaWriter:
    """An open topic; records are sent in the background, each once as long as this process lives."""

    def __init__(self, sink: Kafka, schema: Schema) -> None:
        self._sink, self._sending = sink, Sending(sink, schema)
        self._producer = Producer(producing(sink, **{"enable.idempotence": True}))
        try:
            self._producer.list_topics(sink.topic, timeout=sink.patience_s)
        except KafkaException as error:
            raise explained(sink, "write", error) from None

    def write(self, batch: Batch) -> Refused:
        """Take records; while too many wait this waits, for a while."""
        messages, refusals = self._sending.messages(batch)
        try:
            self._sending.send(self._producer, messages)
        except KafkaException as error:
            raise explained(self._sink, "write", error) from None
        return refusals

    def flush(self) -> None:
        """Wait until the cluster has all records."""
        count = self._producer.flush(self._sink.patience_s)
        failures, self._sending.failures = self._sending.failures, []
        if failures:
            raise InputError(f"{explained(self._sink, 'write', failures[0])}", records=len(failures))
        if count:
            raise InputError(f"cannot write {self._sink}: {count} records wait for the cluster", records=count)

    def close(self) -> None:
        """Wait for what is on its way."""
        self.flush()


def _size(message: Message) -> int:
    """Return how large a message is at most, as the client reckons."""
    value, key, headers = message
    headers_size = sum(len(name) + len(content) + _AROUND for name, content in headers or ())
    return len(value) + len(key or b"") + headers_size + _AROUND
