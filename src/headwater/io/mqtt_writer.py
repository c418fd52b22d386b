"""Publishing to an MQTT topic."""

from __future__ import annotations

from collections import deque
from threading import Condition, Thread
from typing import Any

from headwater.errors import FlowError, InputError
from headwater.flow.batch import Batch
from headwater.flow.schema import Schema
from headwater.io.mqtt import Mqtt, text_column, topic_columns
from headwater.io.mqtt_connection import Connection
from headwater.io.records import json_lines

Message = tuple[str, bytes]  #: topic and payload

_FLYING = 1000  # messages given to the client at a time and not yet delivered


class MqttWriter:
    """An open topic to publish to; records wait in a bounded buffer until the broker has them.

    A thread of its own hands them to the client, so that writing works while the broker is away.
    """

    def __init__(self, sink: Mqtt, schema: Schema) -> None:
        self._sink, self._schema = sink, schema
        self._pieces = topic_columns(sink.topic)
        named = tuple(name for _, name in self._pieces if name is not None)
        for name in named:
            schema.type_of(name, what=f"topic {sink.topic!r}")
        if "+" in sink.topic or "#" in sink.topic:
            raise FlowError(f"topic {sink.topic!r} to publish to holds a wildcard; write a column as {{name}}")
        self._text = text_column(schema, named) if sink.payload == "text" else None
        self._waiting: deque[Message] = deque()
        self._flying: deque[Message] = deque()  # given to the client, in order
        self._changed = Condition()  # the client's own locks are never asked for while this one is held
        self._closed = False
        self._connection = Connection(sink.address, sink.name_for("write"), keep_session=False, retry_s=sink.retry_s)
        self._connection.client.max_inflight_messages_set(100)
        self._connection.client.on_publish = self._delivered
        self._connection.start(lambda session_kept: None, self._connection_changed)
        self._thread = Thread(target=self._send, name="headwater-mqtt", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Records that the broker does not have yet."""
        return len(self._waiting) + len(self._flying)

    def write(self, batch: Batch) -> None:
        """Take the records; waits for room when the buffer is full, and fails when there is none in time."""
        self._connection.check()
        messages = self._messages(batch)
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(len(messages)), self._sink.patience_s):
                self._connection.check()
                raise InputError(
                    f"cannot publish to {self._sink}: {self.waiting:,} records wait for the broker already; "
                    "is it running? A larger buffer bridges a longer cut"
                )
            self._waiting.extend(messages)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until the broker has everything; raises InputError if it does not come to that in time."""
        with self._changed:
            self._changed.wait_for(lambda: not self.waiting or self._connection.refused, self._sink.patience_s)
            left = self.waiting
        if left:
            self._connection.check()
            raise InputError(
                f"{left:,} records wait for {self._sink}: the broker did not take them in time; is it running?"
            )

    def close(self) -> None:
        """Wait until the broker has everything, and leave; raises InputError if it does not come to that."""
        with self._changed:
            self._changed.wait_for(lambda: not self.waiting or self._connection.refused, self._sink.patience_s)
            left = self.waiting
            self._closed = True
            self._changed.notify_all()
        self._connection.close()
        self._thread.join()
        if left:
            raise InputError(
                f"{left:,} records were not delivered to {self._sink}: the broker did not take them in time"
            )

    def _has_room(self, count: int) -> bool:
        return self.waiting + count <= self._sink.buffer or not self.waiting

    def _messages(self, batch: Batch) -> list[Message]:
        columns = {name: batch[name].tolist() for _, name in self._pieces if name is not None}
        topics = ["".join(self._topic(columns, row)) for row in range(len(batch))]
        for topic in set(topics):
            if not topic or set(topic) & set("+#\0"):
                raise InputError(f"cannot publish to topic {topic!r}, which a record's columns made: it has a wildcard")
        if self._text is None:
            return list(zip(topics, json_lines(batch, self._schema), strict=True))
        texts = [b"" if text is None else text.encode() for text in batch[self._text].tolist()]
        return list(zip(topics, texts, strict=True))

    def _topic(self, columns: dict[str, list[Any]], row: int) -> list[str]:
        return [plain + ("" if name is None else str(columns[name][row])) for plain, name in self._pieces]

    def _send(self) -> None:
        """Hand messages to the client while the broker is there."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._may_send())
                if self._closed:
                    return
                message = self._waiting.popleft()
                self._flying.append(message)
            topic, payload = message
            sent = self._connection.client.publish(topic, payload, qos=self._sink.qos, retain=self._sink.retain)
            if sent.rc and self._sink.qos == 0:
                self._take_back()

    def _may_send(self) -> bool:
        return bool(self._waiting) and len(self._flying) < _FLYING and self._connection.connected.is_set()

    def _delivered(self, client: Any, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
        """Hear that a message is out of our hands."""
        with self._changed:
            if self._flying:
                self._flying.popleft()
            self._changed.notify_all()

    def _connection_changed(self) -> None:
        if not self._connection.connected.is_set():
            self._take_back()
        with self._changed:
            self._changed.notify_all()

    def _take_back(self) -> None:
        """Keep what a lost connection did not carry; with QoS 1 the client itself sends it again."""
        if self._sink.qos == 0:
            with self._changed:
                self._waiting.extendleft(reversed(self._flying))
                self._flying.clear()
