"""The servers that runs read from and write to: those that were given, and those that can be started here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from headwater_bench.servers import NotHereError, kafka, mosquitto
from headwater_bench.servers.postgresql import Postgresql
from headwater_bench.servers.taking import Taking


@dataclass
class Servers:
    """Where they are; None for one that is not there."""

    postgres: str | None = None  #: the URL of a database
    kafka: str | None = None  #: brokers
    mqtt: int | None = None  #: the port of a broker on this machine
    http: Taking | None = None
    missing: list[str] = field(default_factory=list)  #: what is not there, and why


@contextmanager
def started(postgres: str | None, brokers: str | None, *, quick: bool) -> Iterator[Servers]:
    """Have all servers that can be had, while the context lasts; to be quick, none that takes seconds to start."""
    servers = Servers(postgres, brokers)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-servers-")))
        servers.http = Taking(folder).start()
        stack.callback(servers.http.kill)
        try:
            servers.mqtt = stack.enter_context(mosquitto.broker("max_queued_messages 0"))
        except NotHereError as error:
            servers.missing.append(f"MQTT: {error}")
        if servers.postgres is None and not quick:
            servers.postgres = _database(servers, stack)
        if servers.kafka is None and not quick:
            servers.kafka = _brokers(servers, stack, folder)
        yield servers


def _database(servers: Servers, stack: ExitStack) -> str | None:
    try:
        server = Postgresql()
    except NotHereError as error:
        servers.missing.append(f"PostgreSQL: {error}")
        return None
    stack.callback(server.remove)
    return server.start().url


def _brokers(servers: Servers, stack: ExitStack, folder: Path) -> str | None:
    if find_spec("confluent_kafka") is None:
        servers.missing.append("Kafka: confluent-kafka is not installed")
        return None
    try:
        return stack.enter_context(kafka.broker(folder))
    except NotHereError as error:
        servers.missing.append(f"Kafka: {error}")
        return None
