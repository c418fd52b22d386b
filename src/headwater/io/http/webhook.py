"""A server that takes records from who posts them, described."""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import Reject, Resume
from headwater.flow.identity import Identity
from headwater.flow.places import Place
from headwater.io.amounts import nbytes
from headwater.io.mqtt import text_column
from headwater.io.payload import payload_schema

if TYPE_CHECKING:
    from headwater.io.http.reader import WebhookReader

Bad = Literal["refuse", "dead letter"]


class Webhook:
    """An HTTP server that takes what others POST: a JSON object, an array of objects, or JSON Lines.

    With `payload="text"` a body is one record, for the one text column of `schema`. A request is taken whole or not at all:
    if a record in it does not fit, the answer is 400 and says which and why; `bad="dead letter"` takes the others, and makes
    dead letters of these. It listens on this machine alone unless `host` says otherwise (`"0.0.0.0"`); `token` is what
    senders give as `Authorization: Bearer …` (or HEADWATER_WEBHOOK_TOKEN in the environment), `certificate` and `key` are
    files for TLS. A body has `largest` bytes at most, else the answer is 413.

    With a checkpoint the answer is 200 when the records are safe on disk, without one when the flow has them in memory: a
    crash costs those then. A sender that is not answered, or not with 200, sends again; with `keyed` it must give each
    request an `Idempotency-Key`, and one that came before is answered and not taken again, also by a later run. The last
    2,048 keys are known. While more than `buffer` bytes wait for the flow the answer is 429, and 503 when a request was
    not taken within `patience`, each with `Retry-After`.
    """

    resume: Resume = "sender"

    def __init__(
        self,
        port: int,
        schema: Fields | None = None,
        *,
        host: str = "127.0.0.1",
        path: str = "/",
        token: str | None = None,
        payload: Literal["json", "text"] = "json",
        bad: Bad = "refuse",
        keyed: bool = False,
        certificate: str | None = None,
        key: str | None = None,
        largest: str | int = "8 MB",
        buffer: str | int = "64 MB",
        patience: Duration = "30 s",
        connections: int = 256,
    ) -> None:
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 65536:
            raise FlowError(f"port is a number from 1 to 65535, or 0 for any that is free; got {port!r}")
        if not path.startswith("/"):
            raise FlowError(f"path begins with a /, such as '/levels'; got {path!r}")
        if payload not in ("json", "text"):
            raise FlowError(f"payload is 'json' or 'text'; got {payload!r}")
        if bad not in ("refuse", "dead letter"):
            raise FlowError(f"bad is 'refuse' or 'dead letter'; got {bad!r}")
        if key is not None and certificate is None:
            raise FlowError("key= goes with certificate=, the file of the server's certificate")
        if not isinstance(connections, int) or connections < 1:
            raise FlowError(f"connections is how many may be open at once, 1 or more; got {connections!r}")
        self.port, self.host, self.path, self.payload, self.bad, self.keyed = port, host, path, payload, bad, keyed
        self.token = os.environ.get("HEADWATER_WEBHOOK_TOKEN") if token is None else token
        if self.token == "":
            raise FlowError("the token is empty, which everybody would know; leave it out, or give one")
        self.certificate, self.key, self.connections = certificate, key, connections
        self.largest, self.buffer = nbytes(largest), nbytes(buffer)
        if not self.largest <= self.buffer < 2**31:
            raise FlowError(
                f"buffer is at least what a body may have (largest), and less than 2 GiB; got {buffer!r} and {largest!r}"
            )
        self.patience_s = microseconds(patience) / 1e6
        self._own_schema = None if schema is None else Schema.of(schema)
        if self._own_schema is not None and payload == "text":
            text_column(self._own_schema, ())

    @property
    def schema(self) -> Schema:
        """The columns of the records that are taken."""
        return payload_schema(self._own_schema, self.payload, self)

    def open(self, reject: Reject, state: Any = None) -> WebhookReader:
        """Start listening; `state` is what an earlier reader told of requests that may come again."""
        from headwater.io.http.reader import WebhookReader

        return WebhookReader(self, reject, state)

    @property
    def recognizes(self) -> bool:
        """Whether a request that comes again is told from a new one, also by a later run."""
        return self.keyed

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def identity(self) -> Identity:
        """The path: a server may move."""
        return {"path": self.path}

    def claims(self, *, writing: bool) -> Place | None:
        """Return the port, on which one can listen."""
        if not self.port:
            return None
        advice = "one server can listen on a port. Give each its own, or read it once and use the stream twice"
        return Place(f"port {self.port} of {self.host}", ("tcp", self.host, self.port), shared=False, advice=advice)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.certificate else ''}://{host}:{self.port}{self.path}"
