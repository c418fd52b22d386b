"""Parts for a URL: the requests of a part have the same keys whenever they are sent."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.data.batch import Batch, concat_batches
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.http.endpoint import Http
from headwater.io.http.poster import UnreachedError
from headwater.io.http.writer import Posts


class HttpUplink:
    """The way to a server, which may be away."""

    def __init__(self, sink: Http, schema: Schema) -> None:
        self._posts = Posts(sink, schema)

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Have a part at the server; one that knows its keys takes again nothing that it has.

        However its records came, they go as many to a request as may: else a part of a slow source would take hundreds.
        """
        whole = concat_batches(batches)
        try:
            refusals = self._posts.post(whole, f"{name}-{number}")
        except UnreachedError as error:
            raise InputError(str(error)) from None
        self._posts.forget()
        return [(whole, refusals)] if refusals else []

    def close(self) -> None:
        """Let the connection go."""
        self._posts.close()
