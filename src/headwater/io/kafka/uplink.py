"""Parts for a topic: each is one transaction of the cluster, which notes the part's number with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Refused
from headwater.io.kafka.endpoint import Kafka
from headwater.io.kafka.transactions import Transactions
from headwater.io.kafka.writer import Sending


class KafkaUplink:
    """The way to a cluster, which may be away."""

    def __init__(self, sink: Kafka, schema: Schema) -> None:
        self._sending = Sending(sink, schema)
        self._transactions = Transactions(sink, self._sending)

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Have a part in the topic, unless it is."""
        parts = [(batch, *self._sending.messages(batch)) for batch in batches]
        self._transactions.once(name, number, chain.from_iterable(messages for _, messages, _ in parts))
        return [(batch, refusals) for batch, _, refusals in parts if refusals]

    def close(self) -> None:
        """Leave the cluster; a transaction that is open comes to nothing."""
        self._transactions.close()
