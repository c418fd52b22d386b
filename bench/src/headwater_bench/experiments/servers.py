"""Servers that an experiment writes to as well, where there are any; what it wrote is read back, and removed."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater import io
from headwater.flow.stream import Stream

_PATIENCE_S = 30.0

Rows = Counter[tuple[Any, ...]]


class Servers(NamedTuple):
    """Where they are; None for one that is not there."""

    postgres: str | None = None  #: the URL of a database
    kafka: str | None = None  #: brokers

    def write(self, stream: Stream, folder: Path) -> None:
        """Have a flow write a stream to each, under a name that belongs to a folder."""
        if self.postgres is not None:
            stream.write("database", io.Postgres(self.postgres, _name(folder)))
        if self.kafka is not None:
            stream.write("topic", io.Kafka(self.kafka, _name(folder)))

    def take(self, folder: Path, columns: tuple[str, ...]) -> dict[str, Rows]:
        """Return what each holds under that name, by these columns, and remove it there."""
        held: dict[str, Rows] = {}
        if self.postgres is not None:
            held["database"] = Counter(_rows(self.postgres, _name(folder), columns))
        if self.kafka is not None:
            held["topic"] = Counter(_messages(self.kafka, _name(folder), columns))
        return held


def _name(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


def _rows(url: str, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    import psycopg
    from psycopg import sql

    with psycopg.connect(url) as database:
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        rows = database.execute(sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table))).fetchall()
        database.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(table)))
    return rows


def _messages(servers: str, topic: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Read a topic as another program would, those messages alone whose transactions were committed."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    settings = {"bootstrap.servers": servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        known = consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions
        found = [message for number in known for message in _of_partition(consumer, TopicPartition(topic, number, 0))]
    finally:
        consumer.close()
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_topics([topic]).values():
        done.result(_PATIENCE_S)
    return [tuple(msgspec.json.decode(value)[name] for name in columns) for value in found]


def _of_partition(consumer: Any, partition: Any) -> list[bytes]:
    from confluent_kafka import KafkaError

    consumer.assign([partition])
    found: list[bytes] = []
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
    raise AssertionError(f"{partition.topic} has no end after {_PATIENCE_S:g} s")
