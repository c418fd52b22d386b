"""Kafka: a topic to read from or to write to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import DeliverySemantics, Ledger, Reject, Resume, Transaction
from headwater.flow.identity import Identity, difference
from headwater.io.payload import payload_schema
from headwater.io.urls import without_password

if TYPE_CHECKING:
    from headwater.io.kafka.reader import KafkaReader
    from headwater.io.kafka.writer import KafkaWriter


class Kafka:
    """A topic of a Kafka cluster. This needs the extra `headwater[kafka]`, and to read on Spark its own connector.

    A value is a JSON object of the columns of `schema`, or with `payload="text"` a text as it is, for the one text column
    of `schema`. Reading begins with the earliest record that is there, or with what comes from now on (`start="latest"`),
    and after a restart where it was. `options` are the client's own, such as `{"kafka.security.protocol": "SSL"}`.
    `key_column` adds each record's key as text, `topic_column` the topic that it came from. With `pattern`, `topic` is a
    regular expression, and all topics are read whose whole name it fits, those that are made later too; on Spark only.

    On the engine, `group` names a consumer group to which offsets are committed behind checkpoints, for tools that watch how
    far it is; the checkpoint itself keeps them.

    When written, each record has a key, by which Kafka chooses its partition, so that records of one key stay in order:
    the columns `key`, or on Spark those of the last `key_by` before, where records still have them; `key=()` writes none.
    One text column is the key as it is, one column of another type its JSON text, several a JSON object. With a checkpoint,
    what came between two of the engine's, or in a micro-batch on Spark, is one transaction: a reader that takes only what is
    committed has every record once. While the cluster is away the engine keeps records beside the checkpoint, and Spark
    waits. Where Spark's own connector has to write, records may be there twice after a kill: without the extra, or with
    options that only Java's client knows.

    `headers` is a column of objects, such as `{"unit": "cm"}`: a record's headers, apart from its value.
    """

    resume: Resume = "position"
    delivery: DeliverySemantics = "transactional"
    remote = True
    splits = True  #: its partitions

    def __init__(
        self,
        servers: str,
        topic: str,
        schema: Fields | None = None,
        *,
        payload: Literal["json", "text"] = "json",
        start: Literal["earliest", "latest"] = "earliest",
        key: str | Sequence[str] | None = None,
        key_column: str | None = None,
        topic_column: str | None = None,
        pattern: bool = False,
        headers: str | None = None,
        group: str | None = None,
        patience: Duration = "5 s",
        options: Mapping[str, str] | None = None,
    ) -> None:
        if payload not in ("json", "text"):
            raise FlowError(f"payload is 'json' or 'text'; got {payload!r}")
        if start not in ("earliest", "latest"):
            raise FlowError(f"start is 'earliest' or 'latest'; got {start!r}")
        self.servers, self.topic, self.payload, self.start = servers, topic, payload, start
        self.key = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        self.key_column, self.topic_column, self.headers, self.group = key_column, topic_column, headers, group
        self.pattern = pattern
        if pattern:
            try:
                re.compile(topic)
            except re.error as error:
                raise FlowError(f"the pattern of topics {topic!r} is no regular expression: {error}") from None
        self.patience_s = microseconds(patience) / 1e6
        self.options = {"kafka.bootstrap.servers": servers, **(options or {})}
        self._own_schema = None if schema is None else Schema.of(schema)

    @property
    def schema(self) -> Schema:
        """The columns of the records that are read."""
        more: dict[str, Any] = {name: str for name in (self.key_column, self.topic_column) if name is not None}
        if self.headers is not None:
            more[self.headers] = "any"
        return self.fields.with_fields(more) if more else self.fields

    @property
    def fields(self) -> Schema:
        """The columns that a value holds."""
        return payload_schema(self._own_schema, self.payload, self)

    @property
    def identity(self) -> Identity:
        """The topic, and brokers of its cluster."""
        servers = sorted(self.servers.split(","))
        return {"topics" if self.pattern else "topic": self.topic, "servers": servers}

    def other_than(self, before: Identity) -> str:
        """Say whether it is another topic than before; not all brokers of a cluster need be named."""
        now = {"kind": before["kind"], **self.identity}
        if set(before["servers"]) & set(now["servers"]):
            before, now = ({**each, "servers": []} for each in (before, now))
        return difference(before, now)

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None) -> KafkaReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> KafkaWriter: ...
    def open(self, reject_or_schema: Reject | Schema, position: Any = None) -> KafkaReader | KafkaWriter:
        """Start reading, from the offsets that `position` has by partition; with a schema instead, start writing."""
        from headwater.io.kafka.reader import KafkaReader
        from headwater.io.kafka.writer import KafkaWriter

        if isinstance(reject_or_schema, Schema):
            self.check_write(reject_or_schema)
            return KafkaWriter(self, reject_or_schema)
        self.check_read()
        return KafkaReader(self, reject_or_schema, position)

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Start writing in parts, each of which is one transaction of the cluster, as soon as that is there."""
        from headwater.io.kafka.uplink import KafkaUplink
        from headwater.io.transactions.outbox import Outbox

        return Outbox(self, KafkaUplink(self, schema), ledger)

    def check_read(self) -> None:
        """Raise for what only Spark can do."""
        if self.pattern:
            raise FlowError(
                f"{self} is a pattern of topics, which are read on Spark only: run the flow with --on spark"
            )

    def check_write(self, schema: Schema) -> None:
        """Raise where it is not known which topic is meant."""
        if self.pattern:
            raise FlowError(f"{self} is a pattern of topics; to write, name one")

    def check_on_spark(self) -> None:
        """Raise for what only the engine can do."""
        if self.group is not None:
            raise FlowError(f"group of {self} is for the engine; on Spark leave it out")

    def __str__(self) -> str:
        return f"kafka://{without_password(self.servers)}/{self.topic}"
