"""Reading a topic by its offsets."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.data.batch import Batch, stamped
from headwater.data.column import Column, Text, column_of
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.io.json.columns import JsonColumns
from headwater.io.kafka.client import explained, settings
from headwater.io.kafka.endpoint import Kafka
from headwater.io.mqtt import text_column

_LOOK_S = 30.0  #: between two looks for partitions that are new
Position = dict[str, int]  #: the offset that comes next, by partition


class KafkaReader:
    """An open topic: all its partitions, each from an offset on, and only what transactions have committed."""

    def __init__(self, source: Kafka, reject: Reject, position: Position | None) -> None:
        self._source, self._schema, self._reject = source, source.schema, reject
        self._decoder = None if source.payload == "text" else JsonColumns(source.fields)
        self._next: Position = dict(position or {})
        self._assigned: set[int] = set()
        given = {"group.id": source.group or "headwater", "enable.auto.commit": False, "auto.offset.reset": "error"}
        self._consumer = Consumer(settings(source, **given, **{"isolation.level": "read_committed"}))
        try:
            self._look(source.start)
        except InputError:
            self._consumer.close()
            raise

    @property
    def position(self) -> Position:
        """The offsets that come next; as they are now, since what is kept must not move with the reader."""
        return dict(self._next)

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return records; none if nothing came in time. A topic has no end."""
        if time.monotonic() > self._look_s:
            self._look("earliest")  # all of a partition that was not there before
        messages = [message for message in self._consumer.consume(limit, timeout_s) if self._is_record(message)]
        for message in messages:
            self._next[str(message.partition())] = message.offset() + 1
        return self._batch(messages) if messages else Batch.none(self._schema)

    def commit(self, position: Position) -> None:
        """Let the consumer group know, where there is one; a checkpoint keeps what counts."""
        if self._source.group is not None and position:
            topic = self._source.topic
            offsets = [TopicPartition(topic, int(partition), offset) for partition, offset in position.items()]
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def _look(self, start: str) -> None:
        """Begin to read partitions that are not read yet."""
        topic, timeout_s = self._source.topic, self._source.patience_s
        try:
            found = self._consumer.list_topics(topic, timeout=timeout_s).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            for partition in sorted(set(found.partitions) - self._assigned):
                if str(partition) not in self._next:
                    low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout_s)
                    self._next[str(partition)] = low if start == "earliest" else high
                offset = self._next[str(partition)]
                self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
                self._assigned.add(partition)
        except KafkaException as error:
            if not self._assigned:
                raise explained(self._source, "read", error) from None
        self._look_s = time.monotonic() + _LOOK_S

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise InputError(
                f"cannot read {self._source} on from {self._next}: {error.str()}. The cluster has removed records that "
                "were not read; begin anew with another checkpoint, and a longer retention"
            )
        if error.fatal() or not error.retriable():
            raise explained(self._source, "read", error)
        return False

    def _batch(self, messages: list[Message]) -> Batch:
        def refuse(number: int, text: bytes, reason: str) -> None:
            place = f"partition {messages[number].partition()} offset {messages[number].offset()}"
            self._reject(text.decode(errors="replace"), f"{self._source} {place}: {reason}")

        columns: dict[str, Column]
        values = [message.value() or b"" for message in messages]
        kept: Any = None
        if self._decoder is not None:
            columns, kept = self._decoder.of(Text.of_bytes(values), refuse)
        else:
            texts = [value.decode(errors="replace") for value in values]
            columns = {text_column(self._source.fields, ()): Text.of(texts)}
        those = messages if kept is None else [messages[row] for row in kept.tolist()]
        if self._source.key_column is not None:
            keys = [None if each.key() is None else each.key().decode(errors="replace") for each in those]
            columns[self._source.key_column] = column_of(keys, "text", name=self._source.key_column)
        if self._source.topic_column is not None:
            columns[self._source.topic_column] = Text.of([self._source.topic] * len(those))
        if self._source.headers is not None:
            columns[self._source.headers] = column_of(
                [_headers(each) for each in those], "any", name=self._source.headers
            )
        created_ns = np.array([each.timestamp()[1] * 1_000_000 for each in those], np.int64)
        return Batch({name: columns[name] for name in self._schema}, len(those), stamped(len(those), created_ns))


def _headers(message: Message) -> dict[str, str | None] | None:
    found = message.headers()
    if not found:
        return None
    return {name: None if value is None else value.decode(errors="replace") for name, value in found}
