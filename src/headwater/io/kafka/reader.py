"""Reading a topic by its offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.data.batch import Batch, stamped
from headwater.data.column import Column, Text, column_of
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.flow.splits import Letter, SplitBatch
from headwater.io.json.columns import JsonColumns
from headwater.io.kafka.client import explained, settings
from headwater.io.kafka.endpoint import Kafka
from headwater.io.mqtt import text_column

log = logging.getLogger(__name__)

_OLD_S = 10.0  #: how long a record has waited in the topic where it does not come as it is made
_LOOK_S = 30.0  #: between two looks for partitions that are new
Position = dict[str, int]  #: the offset that comes next, by partition


class KafkaReader:
    """An open topic: all its partitions, each from an offset on, and only what transactions have committed."""

    def __init__(self, source: Kafka, reject: Reject, position: Position | None) -> None:
        self._source, self._schema, self._reject = source, source.schema, reject
        self._decoder = None if source.payload == "text" else JsonColumns(source.fields)
        self._next: Position = dict(position or {})
        self._partitions: set[int] = set()
        self._ends: dict[int, int] = {}  #: how far each partition goes, as far as that was asked for
        self._at_end: set[int] = set()  #: partitions of which the cluster said so since their last record
        self._paused: set[int] = set()  #: partitions of which nothing is read for now
        self._checked_s = 0.0
        identity = {"group.id": source.group or "headwater", "enable.auto.commit": False, "auto.offset.reset": "error"}
        # where transactions leave marks behind the last record, only the cluster's word tells the end, after such a wait
        isolation = {"isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 100}
        self._consumer = Consumer(settings(source, **identity, **isolation))
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
        split_batch = self.read_splits(limit, timeout_s)
        for letter in split_batch.letters:
            self._reject(letter.text, letter.error)
        return split_batch.batch

    def read_splits(self, limit: int, timeout_s: float) -> SplitBatch:
        """Return records, each with its partition, and the offset behind it."""
        if time.monotonic() > self._look_s:
            self._look("earliest")  # all of a partition that was not there before
        messages = []
        for message in self._consumer.consume(limit, timeout_s):
            if self._is_record(message):
                self._next[str(message.partition())] = message.offset() + 1
                self._at_end.discard(message.partition())
                messages.append(message)
        if not messages:
            nothing = np.zeros(0, np.int64)
            return SplitBatch(Batch.none(self._schema), nothing, nothing, [])
        if self._at_end:
            self._check_ends(messages)
        return self._batch(messages)

    def behind(self) -> set[int]:
        """Return the partitions that hold more than was read, and those of which nothing is known yet."""
        return {partition for partition in self._partitions if not self._is_at_end(partition)}

    def hold(self, splits: Collection[int]) -> None:
        """Read nothing of some partitions, and of all others."""
        paused = set(splits)
        for change, those in (
            (self._consumer.pause, paused - self._paused),
            (self._consumer.resume, self._paused - paused),
        ):
            if those:
                change([TopicPartition(self._source.topic, partition) for partition in sorted(those)])
        self._paused = paused

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
            metadata = self._consumer.list_topics(topic, timeout=timeout_s).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            for partition in sorted(set(metadata.partitions) - self._partitions):
                if str(partition) not in self._next:
                    low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout_s)
                    self._next[str(partition)] = low if start == "earliest" else high
                    self._ends[partition] = high
                offset = self._next[str(partition)]
                self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])
                self._partitions.add(partition)
        except KafkaException as error:
            if not self._partitions:
                raise explained(self._source, "read", error) from None
        self._look_s = time.monotonic() + _LOOK_S

    def _is_at_end(self, partition: int) -> bool:
        """Tell whether a partition has been read to its end, by what the client last heard of it."""
        if partition in self._at_end:  # behind the last record there may be marks of transactions, or an open one
            return True
        place = TopicPartition(self._source.topic, partition)
        try:
            _, high = self._consumer.get_watermark_offsets(place, cached=True)
        except KafkaException:  # nothing yet
            high = -1
        end = max(high, self._ends.get(partition, -1))
        return bool(0 <= end <= self._next[str(partition)])

    def _check_ends(self, messages: Sequence[Message]) -> None:
        """Ask how far partitions go that were read to their end, if records come that have waited in another.

        After the cluster was away, or this machine was, all may hold more; but the records of one come first.
        """
        now_s = time.time()
        waited_s = now_s - min(message.timestamp()[1] for message in messages) / 1e3
        if waited_s < _OLD_S or abs(now_s - self._checked_s) < _OLD_S:
            return
        self._checked_s = now_s
        for partition in sorted(self._at_end):
            place = TopicPartition(self._source.topic, partition)
            try:
                _, end = self._consumer.get_watermark_offsets(place, self._source.patience_s)
            except KafkaException as error:
                log.info("%s: cannot tell how far partition %d goes: %s", self._source, partition, error)
                continue
            if end > self._next[str(partition)]:
                self._ends[partition] = end
                self._at_end.discard(partition)

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            partition = message.partition()
            self._next[str(partition)] = max(self._next[str(partition)], message.offset())
            self._at_end.add(partition)
            return False
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise InputError(
                f"cannot read {self._source} on from {self._next}: {error.str()}. The cluster has removed records that "
                "were not read; begin anew with another checkpoint, and a longer retention"
            )
        if error.fatal() or not error.retriable():
            raise explained(self._source, "read", error)
        return False

    def _batch(self, messages: list[Message]) -> SplitBatch:
        letters: list[Letter] = []

        def refuse(number: int, text: bytes, reason: str) -> None:
            partition, offset = messages[number].partition(), messages[number].offset()
            error = f"{self._source} partition {partition} offset {offset}: {reason}"
            letters.append(Letter(partition, offset, text.decode(errors="replace"), error))

        columns: dict[str, Column]
        values = [message.value() or b"" for message in messages]
        rows: Any = None
        if self._decoder is not None:
            columns, rows = self._decoder.of(Text.of_bytes(values), refuse)
        else:
            texts = [value.decode(errors="replace") for value in values]
            columns = {text_column(self._source.fields, ()): Text.of(texts)}
        those = messages if rows is None else [messages[row] for row in rows.tolist()]
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
        batch = Batch({name: columns[name] for name in self._schema}, len(those), stamped(len(those), created_ns))
        splits = np.array([each.partition() for each in those], np.int64)
        return SplitBatch(batch, splits, np.array([each.offset() + 1 for each in those], np.int64), letters)


def _headers(message: Message) -> dict[str, str | None] | None:
    headers = message.headers()
    if not headers:
        return None
    return {name: None if value is None else value.decode(errors="replace") for name, value in headers}
