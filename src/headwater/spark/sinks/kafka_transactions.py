"""Kafka, a transaction for each micro-batch: exactly once, for readers that take only what is committed.

The driver sends, by the client library that the engine uses: Spark's own connector has no transactions. The cluster notes
the number of a micro-batch in its transaction, so that nobody has to be asked whether it is there but the cluster itself.
"""

from __future__ import annotations

import logging
import time

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Ledger, NumberedWriter, Refused
from headwater.io.kafka import Kafka
from headwater.io.kafka.transactions import Transactions
from headwater.io.kafka.writer import Message, Sending
from headwater.io.transactions.journal import Journal

log = logging.getLogger(__name__)

_PATIENCE_S = 120.0  #: for which a cluster may be away, as long as Spark's own connector waits
_AGAIN_S = 1.0


class KafkaTransactions(NumberedWriter):
    """Sends the records of a micro-batch together, in the flow's order."""

    def __init__(self, sink: Kafka, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> None:
        self._sink, self._name = sink, ledger.name
        self._sending = Sending(sink, schema, key)
        self._transactions = Transactions(sink, self._sending)
        self._journal = Journal.of(ledger)
        self._waiting: list[Message] = []

    @property
    def committed(self) -> int:
        """The last micro-batch that the cluster has, as far as this checkpoint knows: it may have one more."""
        return self._journal.committed

    def write(self, batch: Batch) -> Refused:
        """Take some of its records."""
        messages, refusals = self._sending.messages(batch)
        self._waiting += messages
        return refusals

    def commit(self, number: int) -> None:
        """Have them all in the topic, unless they are; a cluster that is away is waited for."""
        until_s = time.monotonic() + _PATIENCE_S
        while self._waiting:
            try:
                self._transactions.once(self._name, number, self._waiting)
                break
            except InputError as error:
                if time.monotonic() > until_s:
                    raise
                log.warning("%s; trying once more", error)
                time.sleep(_AGAIN_S)
        self._journal.commit(number)
        self._waiting = []

    def rollback(self) -> None:
        """Forget what was not sent."""
        self._waiting = []

    def close(self) -> None:
        """Leave the cluster."""
        self._transactions.close()
