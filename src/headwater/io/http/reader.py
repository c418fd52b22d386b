"""Reading what was posted to a webhook."""

from __future__ import annotations

from typing import Any

from headwater.data.batch import Batch
from headwater.flow.endpoints import Reject
from headwater.io.http.body import Bodies
from headwater.io.http.inbox import Inbox
from headwater.io.http.server import Server
from headwater.io.http.webhook import Webhook


class WebhookReader:
    """An open server; senders wait for their answers until what they sent is committed."""

    awaits_commit = True  # nobody dawdles while senders wait

    def __init__(self, source: Webhook, reject: Reject, state: Any = None) -> None:
        self._reject = reject
        self._inbox = Inbox(source.schema, state)
        self._server = Server(source, Bodies(source.schema, source.payload), self._inbox)
        self.port = self._server.port  #: where it listens, also where any port would do

    @property
    def position(self) -> int:
        """How often records were handed out, since the reader was opened; senders know what they sent before."""
        return self._inbox.position

    @property
    def known(self) -> list[Any]:
        """By what a later reader recognizes requests that come again; see `Inbox`."""
        return self._inbox.known

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return records of the requests that came; none if nothing came in time."""
        batch, unfit = self._inbox.read(limit, timeout_s)
        for number, text, why in unfit:
            self._reject(text, f"record {number} of a request: {why}")
        return batch

    def commit(self, position: int) -> None:
        """Have those answered with 200 whose records are all before a position."""
        self._inbox.commit(position)

    def close(self) -> None:
        """Take no more; who waits is told to send again."""
        self._server.close(self._inbox.close)
