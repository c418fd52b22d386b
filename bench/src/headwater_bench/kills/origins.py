"""Sources of the cases: generators, files of every kind, and servers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from headwater import io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Source
from headwater_bench.kills.case import FIELDS, RECORDS, Origin, make_records, records
from headwater_bench.servers import free_port, mosquitto
from headwater_bench.servers.posting import posted
from headwater_bench.servers.topics import remove_topic

_RATE = 10_000
_PIECE = 50  #: records that are added, or posted, at once
_PAUSE_S = 0.01
_PATIENCE_S = 60.0


def name_of(folder: Path) -> str:
    """Return the name that a round has at servers."""
    return f"{folder.parent.name}-{folder.name}"


class Generator(Origin):
    """Records that are made, by position."""

    name, ends = "generator", True

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        return io.Generate(make_records, FIELDS, rate=_RATE, count=RECORDS)


class File(Origin):
    """One file, of a kind that its ending says, by offset."""

    ends = True

    def __init__(self, kind: str, ending: str) -> None:
        self.name, self._ending = kind, ending

    def _sink(self, folder: Path) -> io.Csv | io.JsonLines | io.Parquet | io.Sqlite:
        path = folder / f"in.{self._ending}"
        kinds = {"csv": io.Csv, "jsonl": io.JsonLines, "parquet": io.Parquet}
        return io.Sqlite(path, "numbers") if self._ending == "db" else kinds[self._ending](path)

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        return self._sink(folder)

    def prepare(self, folder: Path) -> None:
        """Write the file."""
        schema = Schema.of(FIELDS)
        writer = self._sink(folder).open(schema)
        writer.write(Batch.of(_columns(0, RECORDS), schema))
        writer.close()


class Tail(Origin):
    """A file that grows and is rotated while it is read."""

    name = "followed file, rotated"

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        return io.JsonLines(folder / "in.log", FIELDS, follow=True)

    def prepare(self, folder: Path) -> None:
        """Begin the file, so that it is known which one is read."""
        _append(folder / "in.log", 0, _PIECE)

    def feed(self, folder: Path) -> Callable[[], None]:
        """Append to the file, and rotate it now and then."""
        path, parent = folder / "in.log", os.getpid()

        def feed() -> None:
            while not any(folder.glob("checkpoint/*.checkpoint")):
                _rest(parent)  # until then nobody knows which file was read, once it is rotated
            for start in range(_PIECE, RECORDS, _PIECE):
                if start % (RECORDS // 3) < _PIECE:
                    _rotate(path)
                _append(path, start, start + _PIECE)
                _rest(parent)

        return feed


class Folder(Origin):
    """A folder into which files are put while it is read."""

    name = "growing folder"

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        return io.Folder(folder / "in", "*.jsonl", FIELDS, follow=True, settled="0 s")

    def prepare(self, folder: Path) -> None:
        """Make the folder."""
        (folder / "in").mkdir()

    def feed(self, folder: Path) -> Callable[[], None]:
        """Put files into the folder, each complete when it has its name."""
        parent = os.getpid()

        def feed() -> None:
            for start in range(0, RECORDS, 3 * _PIECE):
                fresh = folder / "in" / f"{start:06d}.tmp"
                _append(fresh, start, min(RECORDS, start + 3 * _PIECE))
                fresh.rename(fresh.with_suffix(".jsonl"))
                _rest(parent)

        return feed


class Mqtt(Origin):
    """A topic; the broker has all messages before the first run, and keeps those that are not acknowledged."""

    points = ("received", "MQTT")
    modules = ("io.mqtt.reader", "io.receiving")

    def __init__(self, port: int, qos: int) -> None:
        self._port, self._qos = port, qos
        self.name, self.once = f"MQTT QoS {qos}", qos == 2

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        topic, url = name_of(folder), f"mqtt://127.0.0.1:{self._port}"
        return io.Mqtt(url, topic, FIELDS, qos=1 if self._qos == 1 else 2, client_id=topic, retry="50 ms")

    def prepare(self, folder: Path) -> None:
        """Subscribe, and then publish with mosquitto's own program."""
        reader = self.source(folder).open(_unexpected)
        assert reader.subscribed.wait(_PATIENCE_S)  # type: ignore[attr-defined]
        reader.close()
        mosquitto.publish(self._port, name_of(folder), [json.dumps(each) for each in records()], qos=self._qos)

    def remove(self, folder: Path) -> None:
        """Have the broker keep nothing more for the flow."""
        mosquitto.forget(self._port, name_of(folder))


class Webhook(Origin):
    """Requests with keys; their sender sends each until it is answered with 200."""

    name, points = "webhook", ("received", "webhook")
    modules = ("io.http.reader", "io.receiving")

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        return io.Webhook(int((folder / "port").read_text()), FIELDS, keyed=True)

    def prepare(self, folder: Path) -> None:
        """Choose the port."""
        (folder / "port").write_text(str(free_port()))

    def feed(self, folder: Path) -> Callable[[], None]:
        """Post all records, one request after the other."""
        port, parent = int((folder / "port").read_text()), os.getpid()

        def feed() -> None:
            for start in range(0, RECORDS, _PIECE):
                body = json.dumps(records(start, start + _PIECE)).encode()
                while posted(port, body, f"request {start}") != 200:
                    _rest(parent)

        return feed


class Kafka(Origin):
    """A topic, by offset; all messages are there before the first run."""

    name, pace = "Kafka", 4.0
    modules = ("io.kafka.reader",)

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        return io.Kafka(self._brokers, f"{name_of(folder)}-in", FIELDS)

    def prepare(self, folder: Path) -> None:
        """Write the topic."""
        from confluent_kafka import Producer

        # who tries again may otherwise send messages in another order
        producer = Producer({"bootstrap.servers": self._brokers, "enable.idempotence": True})
        for each in records():
            producer.produce(f"{name_of(folder)}-in", json.dumps(each), each["key"])
        assert producer.flush(_PATIENCE_S) == 0

    def remove(self, folder: Path) -> None:
        """Remove the topic."""
        remove_topic(self._brokers, f"{name_of(folder)}-in")


class Postgres(Origin):
    """A table, by a column that grows."""

    name, ends = "PostgreSQL", True
    modules = ("io.postgres.reader",)

    def __init__(self, url: str) -> None:
        self._url = url

    def source(self, folder: Path) -> Source:
        """Describe the source of one round."""
        return io.Postgres(self._url, f"{name_of(folder)}-in", FIELDS, order="n")

    def prepare(self, folder: Path) -> None:
        """Write the table."""
        schema = Schema.of(FIELDS)
        writer = io.Postgres(self._url, f"{name_of(folder)}-in").open(schema)
        writer.write(Batch.of(_columns(0, RECORDS), schema))
        writer.close()

    def remove(self, folder: Path) -> None:
        """Remove the table."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self._url) as database:
            database.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(f"{name_of(folder)}-in")))


def _columns(start: int, stop: int) -> dict[str, list[object]]:
    rows = records(start, stop)
    return {name: [row[name] for row in rows] for name in FIELDS}


def _append(path: Path, start: int, stop: int) -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(each) + "\n" for each in records(start, stop)))


def _rotate(path: Path) -> None:
    """Rename a file, and those that were before it, as logrotate does."""
    for number in range(8, 0, -1):
        old = path.with_name(f"{path.name}.{number}")
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))


def _rest(parent: int) -> None:
    """Rest a moment, so that the flow is killed meanwhile; end with who kills it."""
    if os.getppid() != parent:
        os._exit(1)
    time.sleep(_PAUSE_S)


def _unexpected(text: str, error: str) -> None:
    raise AssertionError(f"{text!r}: {error}")
