"""Kafka: a topic to read from or to write to, on Spark, which brings the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError
from headwater.flow.endpoints import Delivery, Resume
from headwater.flow.identity import Identity, difference
from headwater.io.urls import shown


class Kafka:
    """A topic of a Kafka cluster; only the Spark runner reads and writes it, through Spark's own connector.

    A value is a JSON object of the columns of `schema`, or with `payload="text"` a text as it is, for the one text column
    of `schema`. Reading begins with the earliest record that is there, or with what comes from now on (`start="latest"`),
    and after a restart where it was. `options` are the client's own, such as `{"kafka.security.protocol": "SSL"}`.

    When written, each record has a key, by which Kafka chooses its partition, so that records of one key stay in order:
    the columns `key`, or those of the last `key_by` before, where records still have them; `key=()` writes none. One
    text column is the key as it is, one column of another type its JSON text, several a JSON object.
    """

    resume: Resume = "position"  # Spark's connector keeps the offsets
    delivery: Delivery = "neither"

    def __init__(
        self,
        servers: str,
        topic: str,
        schema: Fields | None = None,
        *,
        payload: Literal["json", "text"] = "json",
        start: Literal["earliest", "latest"] = "earliest",
        key: str | Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if payload not in ("json", "text"):
            raise FlowError(f"payload is 'json' or 'text'; got {payload!r}")
        if start not in ("earliest", "latest"):
            raise FlowError(f"start is 'earliest' or 'latest'; got {start!r}")
        self.servers, self.topic, self.payload, self.start = servers, topic, payload, start
        self.key = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        self.options = {"kafka.bootstrap.servers": servers, **(options or {})}
        self._given = None if schema is None else Schema.of(schema)

    @property
    def schema(self) -> Schema:
        """The columns of the records that are read."""
        if self._given is not None:
            return self._given
        if self.payload == "text":
            return Schema.of({"text": str})
        raise FlowError(f"reading JSON from {self} takes a schema, such as schema={{'id': str, 'x': float}}")

    @property
    def identity(self) -> Identity:
        """The topic, and brokers of its cluster."""
        return {"topic": self.topic, "servers": sorted(self.servers.split(","))}

    def other_than(self, before: Identity) -> str:
        """Say whether it is another topic than before; not all brokers of a cluster need be named."""
        now = {"kind": before["kind"], **self.identity}
        if set(before["servers"]) & set(now["servers"]):
            before, now = ({**each, "servers": []} for each in (before, now))
        return difference(before, now)

    def open(self, given: Any) -> NoReturn:
        """Refuse: there is no client but Spark's."""
        raise FlowError(
            f"{self} can be read and written on Spark only: run the flow with --on spark, or use MQTT or files"
        )

    def __str__(self) -> str:
        return f"kafka://{shown(self.servers)}/{self.topic}"
