"""Reading from an MQTT topic."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event

import numpy as np

from headwater.clock import now_ns
from headwater.data.batch import Batch, stamped
from headwater.data.column import Array, Column, Text, parts
from headwater.flow.endpoints import Reject
from headwater.io.json.columns import JsonColumns
from headwater.io.mqtt import packets
from headwater.io.mqtt.client import ReceivedMessages
from headwater.io.mqtt.connection import Connection
from headwater.io.mqtt.endpoint import Mqtt, text_column
from headwater.io.mqtt.inbox import Inbox
from headwater.io.mqtt.packets import Welcome
from headwater.io.mqtt.reasons import reason
from headwater.io.mqtt.scan import RETAINED, whole_texts
from headwater.io.mqtt.topic import checked_filter, matches
from headwater.io.records import Refuse

log = logging.getLogger(__name__)

_NO_LIMIT = 2**62
#: A broker that sent so many, and then nothing for a while, may have stopped; for so long nobody makes it wait then.
_MANY, _STOPPED_NS, _HURRY_NS = 5, 5_000_000, 1_000_000_000


class MqttReader:
    """An open subscription; messages arrive in the background, many at a time, and wait in a bounded buffer.

    A message is acknowledged when the flow comes back for more: by then it has the message in its own hands. Who wants
    to say itself when that is calls `commit`, with a `position` it had before; from the first call on nothing is
    acknowledged otherwise. A broker sends only so many messages that are not acknowledged.
    """

    def __init__(self, source: Mqtt, reject: Reject, numbers: Sequence[int] = ()) -> None:
        checked_filter(source.topic)
        self._source, self._schema, self._reject = source, source.schema, reject
        self._decoder = None if source.payload == "text" else JsonColumns(source.fields)
        self._inbox = Inbox(numbers)
        self.states = self._inbox.states
        self._commits_itself = True
        self._subscribed_before = self._stopped = False
        self._hurry_ns = 0  # until when the broker is taken for one that waits for acknowledgements
        self.subscribed = Event()  #: the broker sends what is published from now on
        self.dropped = 0  #: messages of QoS 0 that came while the buffer was full
        self._connection = Connection(
            source.address, source.hello("read"), self, retry_s=source.retry_s, linger_s=source.linger_s
        )
        self._connection.start()

    @property
    def position(self) -> int:
        """How many messages were handed out, since the reader was opened; the broker knows what was acknowledged before."""
        return self._inbox.position

    @property
    def known(self) -> list[int] | None:
        """With QoS 2, what an earlier reader's successor has to know to take no message twice; see `Inbox.known`."""
        if self._source.qos < 2:
            return None
        with self._connection.condition:
            return self._inbox.known()

    @property
    def awaits_commit(self) -> bool:
        """Whether the broker seems to have as many messages on their way as it will before they are acknowledged."""
        return now_ns() < self._hurry_ns

    @property
    def waiting(self) -> int:
        """Messages that arrived and were not read yet."""
        return self._inbox.waiting

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the messages that arrived; those returned before are acknowledged now, unless `commit` does that."""
        if self._commits_itself:
            self._acknowledge(self._inbox.position)
        condition = self._connection.condition
        with condition:
            if not self._inbox.waiting:
                self._connection.check()
                condition.wait_for(lambda: self._inbox.waiting or self._inbox.is_releasing, timeout_s)
            messages = self._inbox.take(limit)
            if messages is not None and self._source.qos and len(messages) >= _MANY:
                now = now_ns()
                if now - int(messages.arrived_ns[-1]) > _STOPPED_NS:
                    self._hurry_ns = now + _HURRY_NS
            if self._stopped:
                self._connection.wake()
        return Batch.none(self._schema) if messages is None else self._batch(messages)

    def commit(self, position: int) -> None:
        """Acknowledge what was handed out before a position; from now on the reader does so only when told."""
        self._commits_itself = False
        self._acknowledge(position)

    def close(self) -> None:
        """Acknowledge what was handed out, unless `commit` does that, and leave; what still waits comes again with QoS 1."""
        if self._commits_itself:
            self._acknowledge(self._inbox.position)
        self._connection.close()

    def on_connect(self, welcome: Welcome) -> bytes:
        """Subscribe, unless the broker knows."""
        self._inbox.begin(session_kept=welcome.session_kept)
        # a broker that kept the session has the subscription too; asking again would repeat retained messages
        if welcome.session_kept and self._subscribed_before:
            return b""
        if not self._subscribed_before and welcome.session_s is not None and welcome.session_s < self._source.session_s:
            log.warning(
                "%s: the broker keeps our session for %d s, not %d: what comes while we are away for longer is gone",
                self._source, welcome.session_s, self._source.session_s,
            )  # fmt: skip
        self.subscribed.clear()
        self._subscribed_before = True
        return packets.subscribe(self._source.topic, self._source.qos, self._source.version)

    def on_suback(self, code: int) -> None:
        """Take note whether the broker lets us read."""
        if code >= 128:
            why = f" ({reason(code)})" if self._source.version == 5 else ""
            self._connection.refused = f"topic {self._source.topic!r} may not be read{why}; may this client subscribe?"
        else:
            if code < self._source.qos:
                log.warning("%s: the broker grants QoS %d, not %d", self._source, code, self._source.qos)
            self.subscribed.set()

    def room(self) -> int:
        """Without acknowledgements a broker cannot be made to wait, and what is too much is dropped."""
        room = _NO_LIMIT if self._source.qos == 0 else self._room()
        self._stopped = room == 0
        return room

    def _room(self) -> int:
        if self._inbox.waiting_bytes >= self._source.buffer_bytes:
            return 0
        return max(0, self._source.buffer - self._inbox.waiting)

    def on_received(self, received: ReceivedMessages) -> None:
        """Take what arrived."""
        if np.any(received.flags & RETAINED):
            received = self._only_subscribed(received)
        room = self._room()
        if self._source.qos == 0 and len(received) > room:
            self._drop(len(received) - room)
            received = received.rows(0, room)
        self._connection.send(self._inbox.put(received))

    def next_piece(self) -> None:
        """Nothing: a reader only acknowledges."""
        return

    @property
    def midway(self) -> bool:
        """Never."""
        return False

    def on_sent(self, count: int) -> None:
        """Nothing to do: a reader has no pieces."""

    def on_disconnect(self) -> None:
        """Nothing to do: what is here stays here."""

    def _only_subscribed(self, received: ReceivedMessages) -> ReceivedMessages:
        """Leave out kept messages of topics that others subscribed to, which amqtt sends to all who connect."""
        rows = np.flatnonzero(received.flags & RETAINED).tolist()
        strange = [row for row in rows if not matches(self._source.topic, received.topics[row : row + 1].tolist()[0])]
        if not strange:
            return received
        for row in strange:
            self._connection.send(self._inbox.acknowledgements(received.rows(row, row + 1)))
        return received.at(np.delete(np.arange(len(received)), strange))

    def _acknowledge(self, position: int) -> None:
        with self._connection.condition:
            self._connection.send(self._inbox.commit(position, connected=self._connection.connected.is_set()))

    def _drop(self, count: int) -> None:
        before, self.dropped = self.dropped, self.dropped + count
        if before.bit_length() < self.dropped.bit_length():  # the 1st, 2nd, 4th, 8th …: a flood must not flood the log
            log.warning(
                "%s: %d messages dropped so far, since %d wait already (%d bytes); "
                "raise buffer or buffer_bytes, or use qos=1",
                self._source, self.dropped, self._inbox.waiting, self._inbox.waiting_bytes,
            )  # fmt: skip

    def _batch(self, messages: ReceivedMessages) -> Batch:
        def refuse(number: int, text: bytes, reason: str) -> None:
            self._reject(text.decode(errors="replace"), f"{messages.topics[number : number + 1].tolist()[0]}: {reason}")

        columns: dict[str, Column]
        if self._decoder is None:
            texts, rows = self._texts(messages, refuse)
            columns = {text_column(self._source.fields, ()): texts}
        else:
            columns, rows = self._decoder.of(messages.payloads, refuse)
        count = len(messages) if rows is None else len(rows)
        if self._source.topic_column is not None:
            columns[self._source.topic_column] = messages.topics if rows is None else messages.topics.take(rows)
        created_ns = messages.arrived_ns if rows is None else messages.arrived_ns[rows]
        if self._source.created is not None:
            created_us, valid = parts(columns[self._source.created])
            assert isinstance(created_us, np.ndarray)
            created_ns = np.where(True if valid is None else valid, created_us * 1000, created_ns)
        return Batch({name: columns[name] for name in self._schema}, count, stamped(count, created_ns))

    def _texts(self, messages: ReceivedMessages, refuse: Refuse) -> tuple[Text, Array | None]:
        texts = messages.payloads
        fit = whole_texts(texts.data, texts.offsets)
        if fit.all():
            return texts, None
        for row in np.flatnonzero(~fit).tolist():
            refuse(row, texts[row : row + 1].bytes_list()[0], "not UTF-8 text")
        rows = np.flatnonzero(fit)
        return texts.take(rows), rows
