"""Topics of a Kafka broker, by Kafka's own client: made, read as any other program reads them, removed."""

from __future__ import annotations

import time
from typing import Any

_PATIENCE_S = 60.0


def make_topic(brokers: str, topic: str, partitions: int) -> None:
    """Make a topic."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})  # it has to outlive what it is asked
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(_PATIENCE_S)


def in_topic(brokers: str, topic: str) -> list[bytes]:
    """Return those messages of a topic whose transactions were committed."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": brokers, "group.id": f"{topic}-witness", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        return [value for number in partitions for value in _of_partition(consumer, TopicPartition(topic, number, 0))]
    finally:
        consumer.close()


def remove_topic(brokers: str, topic: str) -> None:
    """Remove a topic."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.delete_topics([topic]).values():
        future.result(_PATIENCE_S)


def _of_partition(consumer: Any, partition: Any) -> list[bytes]:
    from confluent_kafka import KafkaError

    consumer.assign([partition])
    values: list[bytes] = []
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                values.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return values
    raise AssertionError(f"{partition.topic} has no end after {_PATIENCE_S:g} s")
