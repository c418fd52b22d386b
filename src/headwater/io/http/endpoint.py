"""A URL that records are posted to, described."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from headwater.data.schema import Schema
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import DeliverySemantics, Ledger, Transaction
from headwater.io.urls import without_password

if TYPE_CHECKING:
    from headwater.io.http.writer import HttpWriter

BodyForm = Literal["lines", "array", "object"]


class Http:
    """A URL to which records are posted, up to `records` in a request: as JSON Lines, an array, or one object each (`form`).

    Each request has a header `Idempotency-Key`, the same when it is sent again, so that a server that knows its keys, as
    `Webhook(keyed=True)` does, has every record once; say `once=True` if this one does. `token` (or HEADWATER_HTTP_TOKEN of
    the environment) is sent as `Authorization: Bearer …`, and `headers` are sent too. `ca`, `certificate` and `key` are
    files for TLS.

    An answer of 2xx is good. After 400, 413 and 422 the request is sent in halves, to find the records that are refused. All
    else may pass: a server that is away or busy (408, 429, 5xx; it may say for how long by `Retry-After`), and one that
    knows no such token or path. With a checkpoint records wait beside it until the server takes them; without, they are
    tried again for `patience`, with ever longer pauses, and then fail. An answer has `timeout` to come, all of it.
    """

    remote = True

    def __init__(
        self,
        url: str,
        *,
        form: BodyForm = "lines",
        records: int = 1000,
        once: bool = False,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        timeout: Duration = "30 s",
        patience: Duration = "5 s",
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FlowError(f"a URL to post to is http://host/path or https://host/path; got {without_password(url)!r}")
        if parts.username is not None or parts.password is not None:
            raise FlowError(f"{without_password(url)}: give a user's secret as token= or in headers=, not in the URL")
        if form not in get_args(BodyForm):
            forms = get_args(BodyForm)
            raise FlowError(f"form is one of {listed(forms)}; got {form!r}{suggestion(str(form), forms)}")
        if not isinstance(records, int) or isinstance(records, bool) or records < 1:
            raise FlowError(f"records is how many a request may have, 1 or more; got {records!r}")
        self.url, self.form, self.once = url, form, once
        self.records = 1 if form == "object" else records
        self.token = os.environ.get("HEADWATER_HTTP_TOKEN") if token is None else token
        self.headers = dict(headers or {})
        for name, value in self.headers.items():
            if any(sign in f"{name}{value}" for sign in "\r\n"):
                raise FlowError(f"header {name!r} has a line break in it")
        self.ca, self.certificate, self.key = ca, certificate, key
        self.timeout_s, self.patience_s = microseconds(timeout) / 1e6, microseconds(patience) / 1e6

    @property
    def delivery(self) -> DeliverySemantics:
        """What the server makes of a request that comes again, as far as was said."""
        return "transactional" if self.once else "neither"

    def open(self, schema: Schema) -> HttpWriter:
        """Start posting."""
        from headwater.io.http.writer import HttpWriter

        return HttpWriter(self, schema)

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Start writing in parts, which wait on disk until the server has them; its requests are named by the part."""
        from headwater.io.http.uplink import HttpUplink
        from headwater.io.transactions.outbox import Outbox

        return Outbox(self, HttpUplink(self, schema), ledger)

    def __str__(self) -> str:
        return without_password(self.url)
