"""Publishing to an MQTT topic."""

from __future__ import annotations

import logging
from secrets import token_hex

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.json.texts import JsonTexts
from headwater.io.mqtt.client import ReceivedMessages
from headwater.io.mqtt.connection import Connection
from headwater.io.mqtt.endpoint import Mqtt, text_column
from headwater.io.mqtt.ids import as_properties, ids_of, in_payloads, in_topics
from headwater.io.mqtt.outbox import Outbox
from headwater.io.mqtt.packets import LONGEST_TEXT, PUBACK, PUBCOMP, PUBREC, Welcome, packet_sizes
from headwater.io.mqtt.reasons import reason
from headwater.io.mqtt.topic import Topic
from headwater.io.sifting import sift

log = logging.getLogger(__name__)

_ID = 200  # bytes that an id takes at most, wherever it is
_WINDOW = 10_000  # messages on their way at a time, where the broker wants no less
_CAREFUL_WINDOW = 20  # of QoS 2 in MQTT 3.1.1, where a broker cannot say how many it takes: mosquitto's own default
_ANSWERS = (PUBACK, PUBREC, PUBCOMP)
_TO_COME = 2**62


class MqttWriter:
    """An open topic to publish to; records wait in a bounded buffer until the broker has them.

    A batch goes out at once, in one piece, while the broker is there; what it does not take at once is sent by the
    connection's thread.
    """

    def __init__(self, sink: Mqtt, schema: Schema) -> None:
        self._sink, self._schema = sink, schema
        self._topic = Topic(sink.topic, schema)
        self._text = text_column(schema, self._topic.columns) if sink.payload == "text" else None
        self._json = JsonTexts(schema)
        window = _CAREFUL_WINDOW if sink.qos == 2 and sink.version < 5 else _WINDOW
        self._outbox = Outbox(sink.qos, sink.retain, sink.version, window)
        self.states = np.zeros(1 << 16, np.uint8)  # of numbers that the broker gives: it has nothing to send
        self._name, self._count = token_hex(6), 0  # by which records are known that nobody else has a key for
        self._denied = 0  # records that the broker would not have
        self._why_denied = ""
        hello = sink.hello("write")
        self._connection = Connection(sink.address, hello, self, retry_s=sink.retry_s, anew=hello.keep_session)
        self._connection.start()

    @property
    def waiting(self) -> int:
        """Records that the broker does not have yet."""
        return self._outbox.waiting

    def write(self, batch: Batch) -> Refused:
        """Take the records that can be messages; waits for room in the buffer, and fails when there is none in time."""
        self._count += batch.length
        return self.write_keyed(batch, self._name, self._count - batch.length)

    def write_keyed(self, batch: Batch, key: str, first: int = 0) -> Refused:
        """Take records that are known by a key and their number from `first` on: with ids, that is the id of each."""
        self._check()
        payloads, topics, refusals = self._messages(batch)
        properties: Text | None = None
        if self._sink.ids is not None:
            ids = ids_of(key, (first + row for row in range(batch.length) if row not in refusals))
            payloads, topics, properties = self._with_ids(payloads, topics, ids)
        with self._connection.condition:
            if not self._connection.condition.wait_for(lambda: self._has_room(payloads), self._sink.patience_s):
                self._check()
                raise InputError(
                    f"cannot publish to {self._sink}: {self.waiting:,} records wait for the broker already, "
                    f"{self._outbox.waiting_bytes:,} bytes; is it running? A larger buffer bridges a longer cut"
                )
            if len(payloads):
                self._outbox.add(payloads, topics, properties)
                self._connection.flush()
        return refusals

    def flush(self) -> None:
        """Wait until the broker has everything; raises InputError if it does not come to that in time."""
        count = self._drain()
        if count:
            self._check()
            raise InputError(
                f"{count:,} records wait for {self._sink}: the broker did not take them in time; is it running?"
            )

    def close(self) -> None:
        """Wait until the broker has everything, and leave; raises InputError if it does not come to that."""
        count = self._drain()
        self._connection.close(forget=True)
        if count:
            why = "the broker did not take them in time"
            if self._connection.refused is not None:
                why = f"the broker refuses the connection: {self._connection.refused}"
            if self._connection.broken is not None:
                why = f"sending broke: {self._connection.broken}"
            raise InputError(f"{count:,} records were not delivered to {self._sink}: {why}", records=count)
        if self._denied:
            message = f"the broker would not have {self._denied:,} records"
            raise InputError(f"{message} of {self._sink}: {self._why_denied}", records=self._denied)

    def on_connect(self, welcome: Welcome) -> bytes:
        """Send again what a lost connection may not have carried."""
        if welcome.maximum_qos < self._sink.qos:
            self._connection.refused = f"it takes QoS {welcome.maximum_qos} at most"
        if self._sink.retain and not welcome.may_retain:
            self._connection.refused = "it retains no messages"
        if welcome.largest < self._outbox.largest:
            size = f"{self._outbox.largest:,} bytes waits for it"
            self._connection.refused = f"it takes messages of {welcome.largest:,} bytes at most, and one of {size}"
        return self._outbox.begin(session_kept=welcome.session_kept, window=welcome.receive_maximum)

    def on_received(self, received: ReceivedMessages) -> None:
        """Take acknowledgements."""
        reply, denied = self._outbox.take_answers(received.answers[np.isin(received.answers[:, 0], _ANSWERS)])
        if len(denied):
            self._denied += len(denied)
            self._why_denied = ", ".join(reason(code) for code in sorted({*denied[:, 2].tolist()}))
            log.warning("%s: the broker would not have %d records: %s", self._sink, len(denied), self._why_denied)
        self._connection.send(reply)
        self._connection.flush()

    def on_suback(self, code: int) -> None:
        """Nothing to do: a writer subscribes to nothing."""

    def room(self) -> int:
        """There is always room for acknowledgements."""
        return _TO_COME

    def next_piece(self) -> memoryview | None:
        """Return what may go out now."""
        return self._outbox.next_piece()

    def on_sent(self, count: int) -> None:
        """Take note of what went out."""
        self._outbox.advance(count)
        if self._sink.qos == 0:
            self._connection.condition.notify_all()

    @property
    def midway(self) -> bool:
        """Whether a packet went out in part."""
        return self._outbox.midway

    def on_disconnect(self) -> None:
        """Keep what a lost connection did not carry."""
        self._outbox.take_back()

    def _check(self) -> None:
        """Raise InputError if nothing will ever be delivered."""
        if self._connection.broken is not None:
            raise InputError(f"cannot publish to {self._sink}: sending broke: {self._connection.broken}")
        self._connection.check()

    def _drain(self) -> int:
        """Wait until the broker has everything, or for as long as patience lasts; return how many records are left."""
        with self._connection.condition:
            self._connection.condition.wait_for(
                lambda: not self.waiting or self._connection.refused or self._connection.broken, self._sink.patience_s
            )
            return self.waiting

    def _has_room(self, payloads: Text) -> bool:
        if not self.waiting:
            return True
        size = self._outbox.waiting_bytes + int(payloads.offsets[-1]) - int(payloads.offsets[0])
        return self.waiting + len(payloads) <= self._sink.buffer and size <= self._sink.buffer_bytes

    def _messages(self, batch: Batch) -> tuple[Text, Text, Refused]:
        """Return payloads and topics of the records that can be messages, and why the others cannot."""
        payloads, _, unfit = sift(batch, self._payloads)
        rows = np.delete(np.arange(batch.length), list(unfit))
        topics, refusals = self._topic.of(batch)
        refusals |= unfit
        one_topic = len(topics) == 1 != batch.length
        sizes = payloads.lengths() + (topics.lengths()[0] if one_topic else topics.lengths()[rows])
        sizes = packet_sizes(sizes + (0 if self._sink.ids is None else _ID), self._sink.qos, self._sink.version)
        largest = self._connection.largest
        for place in np.flatnonzero(sizes > largest).tolist():
            size = int(sizes[place])
            refusals.setdefault(int(rows[place]), f"a message of {size:,} bytes; the broker takes {largest:,} at most")
        if self._sink.ids == "topic":
            for row in np.flatnonzero(topics.lengths() > LONGEST_TEXT - _ID).tolist():
                refusals |= dict.fromkeys(rows.tolist() if one_topic else [row], "its topic has no room for an id")
        if refusals:
            places = np.array([place for place, row in enumerate(rows.tolist()) if row not in refusals], np.int64)
            payloads, rows = payloads.take(places), rows[places]
        if not one_topic and len(rows) < len(topics):
            topics = topics.take(rows)
        return payloads, topics, refusals

    def _with_ids(self, payloads: Text, topics: Text, ids: list[bytes]) -> tuple[Text, Text, Text | None]:
        if self._sink.ids == "property":
            return payloads, topics, as_properties(ids)
        if self._sink.ids == "payload":
            return in_payloads(payloads, ids), topics, None
        return payloads, in_topics(topics, ids), None

    def _payloads(self, batch: Batch) -> Text:
        if self._text is None:
            return self._json.of(batch)
        texts = batch[self._text]
        if isinstance(texts, Text):
            return texts
        return Text.of_bytes([b"" if text is None else text.encode() for text in texts.tolist()])
