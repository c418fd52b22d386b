"""Publishing to an MQTT topic."""

from __future__ import annotations

from collections import deque
from threading import Condition, Thread
from typing import Any

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.mqtt import Mqtt, text_column
from headwater.io.mqtt_connection import Connection
from headwater.io.mqtt_topic import Topic
from headwater.io.records import json_lines
from headwater.io.sifting import sifted

Message = tuple[str, bytes]  #: topic and payload

_LARGEST = 268_435_455 - 4  # bytes of topic and payload: what a packet's length can say, less what goes with them
_FLYING = 1000  # messages given to the client at a time and not yet delivered


class MqttWriter:
    """An open topic to publish to; records wait in a bounded buffer until the broker has them.

    A thread of its own hands them to the client, so that writing works while the broker is away.
    """

    def __init__(self, sink: Mqtt, schema: Schema) -> None:
        self._sink, self._schema = sink, schema
        self._topic = Topic(sink.topic, schema)
        self._text = text_column(schema, self._topic.columns) if sink.payload == "text" else None
        self._waiting: deque[Message] = deque()
        self._flying: deque[Message] = deque()  # given to the client, in order
        self._changed = Condition()  # the client's own locks are never asked for while this one is held
        self._closed = False
        self._broken: Exception | None = None  # what stopped the thread that sends
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

    def write(self, batch: Batch) -> Refused:
        """Take the records that can be messages; waits for room in the buffer, and fails when there is none in time."""
        self._check()
        messages, refused = self._messages(batch)
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(len(messages)), self._sink.patience_s):
                self._check()
                raise InputError(
                    f"cannot publish to {self._sink}: {self.waiting:,} records wait for the broker already; "
                    "is it running? A larger buffer bridges a longer cut"
                )
            self._waiting.extend(messages)
            self._changed.notify_all()
        return refused

    def flush(self) -> None:
        """Wait until the broker has everything; raises InputError if it does not come to that in time."""
        left = self._drained()
        if left:
            self._check()
            raise InputError(
                f"{left:,} records wait for {self._sink}: the broker did not take them in time; is it running?"
            )

    def close(self) -> None:
        """Wait until the broker has everything, and leave; raises InputError if it does not come to that."""
        left = self._drained()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._connection.close()
        self._thread.join()
        if left:
            why = f"sending broke: {self._broken}" if self._broken else "the broker did not take them in time"
            raise InputError(f"{left:,} records were not delivered to {self._sink}: {why}", records=left)

    def _check(self) -> None:
        """Raise InputError if nothing will ever be delivered."""
        if self._broken is not None:
            raise InputError(f"cannot publish to {self._sink}: sending broke: {self._broken}")
        self._connection.check()

    def _drained(self) -> int:
        """Wait until the broker has everything, or for as long as patience lasts; return how many records are left."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self.waiting or self._connection.refused or self._broken, self._sink.patience_s
            )
            return self.waiting

    def _has_room(self, count: int) -> bool:
        return self.waiting + count <= self._sink.buffer or not self.waiting

    def _messages(self, batch: Batch) -> tuple[list[Message], Refused]:
        """Return a message for each record that can be one."""
        topics, refused = self._topic.of(batch)
        payloads, _, unfit = sifted(batch, self._payloads)
        rows = [row for row in range(len(batch)) if row not in unfit]
        refused |= unfit
        refused |= {
            row: f"a message of {len(payload):,} bytes; MQTT carries {_LARGEST:,} at most"
            for row, payload in zip(rows, payloads, strict=True)
            if len(payload) + 4 * len(topics[row]) > _LARGEST
        }
        sent = zip(rows, payloads, strict=True)
        return [(topics[row], payload) for row, payload in sent if row not in refused], refused

    def _payloads(self, batch: Batch) -> list[bytes]:
        if self._text is None:
            return json_lines(batch, self._schema)
        return [b"" if text is None else text.encode() for text in batch[self._text].tolist()]

    def _send(self) -> None:
        """Hand messages to the client while the broker is there; what stops that is told to who writes next."""
        try:
            self._send_on()
        except Exception as error:
            with self._changed:
                self._broken = error
                self._changed.notify_all()

    def _send_on(self) -> None:
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
