"""Parts for a topic: each is one transaction of the cluster, which notes the part's number with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.kafka.client import explained, settings
from headwater.io.kafka.endpoint import Kafka
from headwater.io.kafka.writer import Sending


class KafkaUplink:
    """The way to a cluster, which may be away.

    The number of the last part is an offset of a consumer group that nobody else uses, the one thing that a transaction can
    write beside records; so a part that is there is known, whoever was killed when.
    """

    def __init__(self, sink: Kafka, schema: Schema) -> None:
        self._sink, self._sending = sink, Sending(sink, schema)
        self._producer: Producer | None = None
        self._notes: Consumer | None = None

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Have a part in the topic, unless it is."""
        try:
            if self._producer is None:
                self._begin(name)
            return self._deliver(number, batches)
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
        own = {"transactional.id": f"headwater-{name}", "transaction.timeout.ms": 60_000, "linger.ms": 5}
        producer = Producer(settings(self._sink, **own))
        producer.init_transactions(
            2 * patience_s
        )  # ends what an earlier run has left open, and puts it out if it lives
        given = {"group.id": f"headwater-{name}", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._notes = Consumer(settings(self._sink, **given))
        [noted] = self._notes.committed([self._note(0)], timeout=patience_s)
        self._last = noted.offset - 1 if noted.offset > 0 else -1
        self._producer = producer

    def _deliver(self, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        assert self._producer is not None
        assert self._notes is not None
        if self._last >= number:
            return []
        patience_s = self._sink.patience_s
        self._sending.failed = []
        self._producer.begin_transaction()
        refused = [(batch, self._sending.send(self._producer, batch)) for batch in batches]
        self._producer.flush(patience_s)
        if self._sending.failed:
            raise explained(self._sink, "write", self._sending.failed[0])
        group = self._notes.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([self._note(number + 1)], group, patience_s)
        self._producer.commit_transaction(2 * patience_s)
        self._last = number
        return [(batch, why) for batch, why in refused if why]

    def _note(self, number: int) -> TopicPartition:
        return TopicPartition(self._sink.topic, 0, number)
