"""Fills topics of a broker with a backlog, one partition after the other."""

import json

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater import io
from split_source import SCHEMA, plainly
from waiting import PATIENCE_S


def value_of(row):
    return json.dumps(row, default=lambda at: at.isoformat()).encode()


def fill_splits(servers, topic, rows):
    """Write rows to their partitions."""
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    for partition, those in enumerate(rows):
        for row in those:
            producer.produce(topic, value_of(row), partition=partition)
        assert producer.flush(PATIENCE_S) == 0


def filled(servers, name, rows):
    """Make a topic with a partition for each split, and write rows to them."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, len(rows), 1)]).values():
        made.result(PATIENCE_S)
    fill_splits(servers, name, rows)


def backlog_of(servers, name, rows):
    """Make a topic likewise, and return it as a source."""
    filled(servers, name, rows)
    return io.Kafka(servers, name, SCHEMA)


def closed(rows):
    """Return the windows that close while nothing follows an hour: all but that of the last minute."""
    return {key: value for key, value in plainly(rows).items() if key[1] < 59}
