"""Sinks of the cases, and what other programs find in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater import io
from headwater.flow.endpoints import Sink
from headwater_bench.kills.case import SUMMED, Row, Target
from headwater_bench.kills.origins import name_of
from headwater_bench.servers import mosquitto
from headwater_bench.servers.taking import Taking
from headwater_bench.servers.topics import in_topic, remove_topic


class TextFile(Target):
    """A file of lines, cut back to where the last checkpoint was."""

    name, points = "text file", ("text",)

    def sink(self, folder: Path) -> Sink:
        """Describe the sink of one round."""
        return io.JsonLines(folder / "out.jsonl")

    def rows(self, folder: Path) -> list[Row]:
        """Return what it holds; a last line may be half written, while a run is at it."""
        path = folder / "out.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [_row(json.loads(line)) for line in lines if line.endswith("\n")]


class Postgres(Target):
    """A table, written with the position in one transaction."""

    name, points = "PostgreSQL", ("outbox", "PostgreSQL")
    modules = ("io.postgres.uplink", "io.transactions.outbox")

    def __init__(self, url: str) -> None:
        self._url = url

    def sink(self, folder: Path) -> Sink:
        """Describe the sink of one round."""
        return io.Postgres(self._url, name_of(folder))

    def rows(self, folder: Path) -> list[Row]:
        """Return the table, and drop it."""
        import psycopg
        from psycopg import sql

        table = sql.Identifier(name_of(folder))
        with psycopg.connect(self._url) as database:
            names = sql.SQL(", ").join(map(sql.Identifier, SUMMED))
            rows = database.execute(sql.SQL("SELECT {} FROM {}").format(names, table)).fetchall()
            database.execute(sql.SQL("DROP TABLE {}").format(table))
        return rows


class Kafka(Target):
    """A topic, written in transactions."""

    name, points, pace = "Kafka", ("outbox", "Kafka"), 4.0
    modules = ("io.kafka.uplink", "io.transactions.outbox")

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers

    def sink(self, folder: Path) -> Sink:
        """Describe the sink of one round."""
        return io.Kafka(self._brokers, name_of(folder))

    def rows(self, folder: Path) -> list[Row]:
        """Return those messages of the topic whose transactions were committed, and delete it."""
        topic = name_of(folder)
        values = in_topic(self._brokers, topic)
        remove_topic(self._brokers, topic)
        return [_row(json.loads(value)) for value in values]


class Http(Target):
    """A server that knows requests which come again by their keys, and takes whole requests alone."""

    name, points = "HTTP", ("outbox", "HTTP")
    modules = ("io.http.uplink", "io.transactions.outbox")

    def __init__(self, server: Taking) -> None:
        self._server = server

    def sink(self, folder: Path) -> Sink:
        """Describe the sink of one round."""
        return io.Http(f"http://127.0.0.1:{self._server.port}/{name_of(folder)}", records=100, once=True)

    def rows(self, folder: Path) -> list[Row]:
        """Return what the server has taken."""
        return [_row(each) for each in self._server.records(f"/{name_of(folder)}")]


class Mqtt(Target):
    """A topic: a message may come again, and without ids its receiver can tell by the record's number alone."""

    name, once, points = "MQTT", False, ("forward",)
    modules: tuple[str, ...] = ("io.mqtt.writer", "io.forwarding", "io.transactions.direct")

    def __init__(self, port: int) -> None:
        self._port = port

    def sink(self, folder: Path) -> Sink:
        """Describe the sink of one round."""
        return io.Mqtt(self._url, name_of(folder), qos=1, retry="50 ms")

    @property
    def _url(self) -> str:
        return f"mqtt://127.0.0.1:{self._port}"

    def prepare(self, folder: Path) -> None:
        """Have the broker keep all for a receiver."""
        mosquitto.subscribe(self._port, f"{name_of(folder)}-witness", name_of(folder), qos=1)

    def rows(self, folder: Path) -> list[Row]:
        """Return what the broker has kept for the receiver."""
        lines = mosquitto.hear(self._port, f"{name_of(folder)}-witness", name_of(folder), qos=1)
        return [_row(json.loads(line)) for line in lines]


class MqttWithIds(Mqtt):
    """A topic whose messages have ids: one may come again, and its receiver tells by its id."""

    name, once, ids, points = "MQTT with ids", True, True, ("outbox",)
    modules = ("io.mqtt.uplink", "io.transactions.outbox")

    def sink(self, folder: Path) -> Sink:
        """Describe the sink of one round."""
        return io.Mqtt(self._url, name_of(folder), qos=1, version="5", ids="property", retry="50 ms")

    def rows(self, folder: Path) -> list[Row]:
        """Return what the broker has kept for the receiver, each with its id."""
        lines = mosquitto.hear(self._port, f"{name_of(folder)}-witness", name_of(folder), qos=1, properties=True)
        return [(*_row(json.loads(payload)), id) for _, id, payload in (line.split(" ", 2) for line in lines)]


def _row(record: dict[str, Any]) -> Row:
    return tuple(record[name] for name in SUMMED)
