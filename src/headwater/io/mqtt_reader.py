"""Reading from an MQTT topic."""

from __future__ import annotations

import logging
from collections import deque
from threading import Condition, Event
from typing import Any, NamedTuple

import numpy as np

from headwater.clock import now_ns
from headwater.data.batch import Batch, stamped
from headwater.data.column import Column, Text, parts
from headwater.errors import FlowError
from headwater.flow.endpoints import Reject
from headwater.io.mqtt import Mqtt, text_column
from headwater.io.mqtt_connection import Connection
from headwater.io.records import JsonDecoder

log = logging.getLogger(__name__)


class Message(NamedTuple):
    """What came from the broker, and when."""

    topic: str
    payload: bytes
    arrived_ns: int
    mid: int  #: the broker's number for it, to acknowledge it by
    qos: int


class MqttReader:
    """An open subscription; messages arrive in the background and wait in a bounded buffer.

    A message is acknowledged when the flow comes back for more: by then it has the message in its own hands.
    """

    def __init__(self, source: Mqtt, reject: Reject) -> None:
        if "{" in source.topic:
            raise FlowError(f"topic {source.topic!r} to read from holds a column; did you mean the wildcard '+'?")
        self._source, self._schema, self._reject = source, source.schema, reject
        self._decoder = None if source.payload == "text" else JsonDecoder(source.fields)
        self._waiting: deque[Message] = deque()
        self._handed: list[Message] = []
        self._unacknowledged: dict[int, bytes] = {}  # payloads by the broker's number
        self._done: set[int] = set()  # those of them that were handed out while there was nobody to tell
        self._again: dict[int, bytes] = {}  # what the broker will send again after a cut
        self._changed = Condition()
        self._closed = self._asked = False
        self.subscribed = Event()  #: the broker sends what is published from now on
        self.dropped = 0  #: messages of QoS 0 that came while the buffer was full
        self._connection = Connection(
            source.address, source.name_for("read"), keep_session=source.qos == 1, retry_s=source.retry_s
        )
        self._connection.client.on_message = self._arrived
        self._connection.client.on_subscribe = self._answered
        self._connection.start(self._subscribe, lambda: None)

    @property
    def position(self) -> None:
        """Nothing: the broker knows what was acknowledged."""
        return

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the messages that arrived; those returned before are acknowledged now."""
        self._acknowledge()
        with self._changed:
            if not self._waiting:
                self._connection.check()
            self._changed.wait_for(lambda: self._waiting, timeout_s)
            self._handed = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
            self._changed.notify_all()
        return self._batch(self._handed)

    def close(self) -> None:
        """Acknowledge what was handed out and leave; what still waits comes again with QoS 1."""
        self._acknowledge()
        self.abandon()

    def abandon(self) -> None:
        """Leave without a word on what was handed out last: with QoS 1 that comes again too."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._connection.close()

    def _subscribe(self, session_kept: bool) -> None:
        # a broker that kept the session has the subscription too; asking again would repeat retained messages
        if not (session_kept and self._asked):
            self.subscribed.clear()
            self._connection.client.subscribe(self._source.topic, qos=self._source.qos)
        self._asked = True
        with self._changed:
            if not session_kept:
                self._forget_numbers()
            self._again = dict(self._unacknowledged)

    def _answered(self, client: Any, userdata: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        if reasons[0].is_failure:
            self._connection.refused = f"topic {self._source.topic!r} may not be read ({reasons[0]})"
        else:
            self.subscribed.set()

    def _arrived(self, client: Any, userdata: Any, message: Any) -> None:
        """Take a message from the network thread."""
        if message.retain and not self._asked_for(message.topic):
            return  # amqtt also sends who connects what it keeps of topics that others subscribed to
        taken = Message(message.topic, message.payload, now_ns(), message.mid, message.qos)
        with self._changed:
            if taken.qos == 0:
                if len(self._waiting) >= self._source.buffer:
                    self._drop()
                    return
            elif message.dup and self._again.get(taken.mid) == taken.payload:
                self._swallow(taken)
                return
            else:
                # no reading means no acknowledging, and the broker holds its messages back
                self._changed.wait_for(lambda: self._closed or len(self._waiting) < self._source.buffer)
                self._unacknowledged[taken.mid] = taken.payload
            self._waiting.append(taken)
            self._changed.notify_all()

    def _asked_for(self, topic: str) -> bool:
        from paho.mqtt.client import topic_matches_sub

        return bool(topic_matches_sub(self._source.topic, topic))

    def _swallow(self, message: Message) -> None:
        """Pass over what is here already, or was handed out, and was sent again after a cut."""
        del self._again[message.mid]
        if message.mid in self._done or message.mid not in self._unacknowledged:
            self._connection.client.ack(message.mid, message.qos)
            self._done.discard(message.mid)
            self._unacknowledged.pop(message.mid, None)

    def _acknowledge(self) -> None:
        with self._changed:
            handed, self._handed = self._handed, []
            for message in handed:
                if not message.qos:
                    continue
                if self._connection.connected.is_set():
                    self._connection.client.ack(message.mid, message.qos)
                    self._unacknowledged.pop(message.mid, None)
                else:  # the client would take it, and forget it with the connection
                    self._done.add(message.mid)

    def _forget_numbers(self) -> None:
        """Acknowledge nothing of a session that the broker lost: its numbers start anew."""
        self._waiting = deque(message._replace(qos=0) for message in self._waiting)
        self._handed = [message._replace(qos=0) for message in self._handed]
        self._unacknowledged.clear()
        self._done.clear()

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a flood must not flood the log
            log.warning(
                "%s: %d messages dropped so far, since %d wait already; raise buffer, or use qos=1",
                self._source, self.dropped, self._source.buffer,
            )  # fmt: skip

    def _batch(self, messages: list[Message]) -> Batch:
        def refuse(number: int, text: bytes, reason: str) -> None:
            self._reject(text.decode(errors="replace"), f"{messages[number].topic}: {reason}")

        payloads = [message.payload for message in messages]
        columns: dict[str, Column]
        if self._decoder is None:
            kept = [number for number, text in enumerate(payloads) if _is_text(number, text, refuse)]
            column = text_column(self._source.fields, ())
            columns = {column: Text.of_bytes([payloads[number] for number in kept])}
        else:
            decoded = self._decoder.kept(payloads, refuse)
            kept = [number for number, _ in decoded]
            columns = self._decoder.batch_of([record for _, record in decoded]).columns
        if self._source.topic_column is not None:
            columns[self._source.topic_column] = Text.of([messages[number].topic for number in kept])
        created_ns = np.array([messages[number].arrived_ns for number in kept], np.int64)
        if self._source.created is not None:
            said_us, said = parts(columns[self._source.created])
            assert isinstance(said_us, np.ndarray)
            created_ns = np.where(True if said is None else said, said_us * 1000, created_ns)
        return Batch({name: columns[name] for name in self._schema}, len(kept), stamped(len(kept), created_ns))


def _is_text(number: int, payload: bytes, refuse: Any) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        refuse(number, payload, "not UTF-8 text")
        return False
    return True
