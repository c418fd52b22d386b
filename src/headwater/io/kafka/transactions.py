"""Transactions of a cluster, each with a number: whoever was killed when, what one brought is there once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headwater.errors import InputError
from headwater.io.kafka.client import explained, producing, settings
from headwater.io.kafka.endpoint import Kafka
from headwater.io.kafka.writer import Message, Sending


class Transactions:
    """One after the other, to a cluster that may be away.

    The number of the last one is an offset of a consumer group that nobody else uses, the one thing that a transaction can
    write beside records; so it is known which are there. Who begins under a name puts out whoever goes by it already.
    """

    def __init__(self, sink: Kafka, sending: Sending) -> None:
        self._sink, self._sending = sink, sending
        self._last = -1  #: the number of the last one, once something was asked
        self._producer: Producer | None = None
        self._notes: Consumer | None = None

    def once(self, name: str, number: int, messages: Iterable[Message]) -> None:
        """Have messages there as a whole, under this number, unless they are."""
        try:
            if self._producer is None:
                self._begin(name)
            if number > self._last:
                self._commit(number, messages)
        except KafkaException as error:
            self.close()
            raise explained(self._sink, "write", error) from None
        except InputError:
            self.close()
            raise

    def close(self) -> None:
        """Leave the cluster; a transaction that is open comes to nothing."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.abort_transaction(self._sink.patience_s)
        if self._notes is not None:
            self._notes.close()
            self._notes = None

    def _begin(self, name: str) -> None:
        patience_s = self._sink.patience_s
        own = {"transactional.id": f"headwater-{name}", "transaction.timeout.ms": 60_000}
        producer = Producer(producing(self._sink, **own))
        producer.init_transactions(
            2 * patience_s
        )  # ends what an earlier run has left open, and puts it out if it lives
        reading = {"group.id": f"headwater-{name}", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._notes = Consumer(settings(self._sink, **reading))
        [offset] = self._notes.committed([self._note(0)], timeout=patience_s)
        self._last = offset.offset - 1 if offset.offset > 0 else -1
        self._producer = producer

    def _commit(self, number: int, messages: Iterable[Message]) -> None:
        assert self._producer is not None
        assert self._notes is not None
        patience_s = self._sink.patience_s
        self._sending.failures = []
        self._producer.begin_transaction()
        self._sending.send(self._producer, messages)
        self._producer.flush(patience_s)
        if self._sending.failures:
            raise explained(self._sink, "write", self._sending.failures[0])
        group = self._notes.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([self._note(number + 1)], group, patience_s)
        self._producer.commit_transaction(2 * patience_s)
        self._last = number

    def _note(self, number: int) -> TopicPartition:
        return TopicPartition(self._sink.topic, 0, number)
