"""Requests on their way into a flow: each waits here until the flow has its records, and its sender with it."""

from __future__ import annotations

import time
from collections import deque
from hashlib import blake2b
from threading import Condition
from typing import Any, Literal

from headwater.data.batch import Batch, concat_batches
from headwater.data.schema import Schema
from headwater.io.http.body import Body

_KEY_BYTES = 8
_KEYS = 2048  #: the last that are known

#: What became of a request: its records are taken, or were by an earlier one; not taken, or nobody can tell, in time; or
#: not at all, since the flow is ending.
Outcome = Literal["taken", "taken before", "not taken", "in doubt", "closed"]


class Request:
    """A request that waits."""

    def __init__(self, body: Body, key: bytes | None, skip: int = 0) -> None:
        self.body, self.key = body, key
        self.handed = skip  #: of its records; some may have been handed out by an earlier run
        self.end: int | None = None  #: the position behind its last record, once that is handed out
        self.outcome: Outcome | None = None


class Inbox:
    """Requests in the order they came; handler threads bring them, one reader takes their records.

    A position is how often records were handed out. What a request brings is done with when the position behind its last
    record is committed. `known` is kept by a log with the records themselves, so that a request that comes again after a
    crash is told from a new one, also when only some of its records are in the log.
    """

    def __init__(self, schema: Schema, state: Any = None) -> None:
        self._schema = schema
        self.condition = Condition()
        self.position = 0
        self._waiting: deque[Request] = deque()  # not handed out, or only in part
        self._pending: deque[Request] = deque()  # handed out, and not committed
        self._closed = False
        keys: bytes = b"" if state is None else state[0]
        self._part: bytes = b"" if state is None else state[1]  # key of a request that is in the log in part
        self._part_rows: int = 0 if state is None else state[2]
        self._keys = dict.fromkeys(keys[at : at + _KEY_BYTES] for at in range(0, len(keys), _KEY_BYTES))

    @property
    def known(self) -> list[Any]:
        """Keys of requests that were handed out; and of the one of which only some records were, and how many."""
        with self.condition:
            head = self._waiting[0] if self._waiting else None
            if head is not None and head.key and head.handed:
                return [b"".join(self._keys), head.key, head.handed]
            return [b"".join(self._keys), self._part, self._part_rows]

    def take_in(self, body: Body, key: str | None, patience_s: float) -> Outcome:
        """Bring a request, and wait until its records are taken."""
        until_s = time.monotonic() + patience_s
        with self.condition:
            if self._closed:
                return "closed"
            request = self._request(body, None if key is None else _short(key))
            if request is None:
                return "taken before"
            self.condition.wait_for(lambda: request.outcome is not None, max(0.0, until_s - time.monotonic()))
            if request.outcome is not None:
                return request.outcome
            if request in self._waiting and not request.handed:
                self._waiting.remove(request)
                request.outcome = "not taken"  # for those too who wait for the same one
                self.condition.notify_all()
                return "not taken"
            return "in doubt"

    def read(self, limit: int, timeout_s: float) -> tuple[Batch, list[tuple[int, str, str]]]:
        """Hand out records, and what was no record among them."""
        with self.condition:
            self.condition.wait_for(lambda: self._waiting or self._closed, timeout_s)
            if not self._waiting:
                return Batch.none(self._schema), []
            self.position += 1
            batches: list[Batch] = []
            unfit: list[tuple[int, str, str]] = []
            while self._waiting and limit > 0:
                request = self._waiting[0]
                whole = request.body.batch
                batch = whole.slice(request.handed, min(whole.length, request.handed + limit))
                request.handed += batch.length
                limit -= batch.length
                batches.append(batch)
                if request.handed == whole.length:
                    unfit += request.body.unfit
                    self._finish(self._waiting.popleft())
            return concat_batches(batches), unfit

    def commit(self, position: int) -> None:
        """Let those go whose records are safe."""
        with self.condition:
            while self._pending and self._pending[0].end is not None and self._pending[0].end <= position:
                self._pending.popleft().outcome = "taken"
            self.condition.notify_all()

    def close(self) -> None:
        """Let all go who wait."""
        with self.condition:
            self._closed = True
            for request in self._waiting:
                request.outcome = "in doubt" if request.handed else "closed"
            for request in self._pending:
                request.outcome = "in doubt"
            self._waiting.clear()
            self._pending.clear()
            self.condition.notify_all()

    def _request(self, body: Body, key: bytes | None) -> Request | None:
        """Return the request to wait for: this one, or the same that came before and waits; None if it is taken."""
        skip = 0
        if key is not None:
            for same in (*self._waiting, *self._pending):
                if same.key == key:
                    return same
            if key in self._keys:
                return None
            if key == self._part:
                skip = min(self._part_rows, body.batch.length)
        request = Request(body, key, skip)
        self._waiting.append(request)
        self.condition.notify_all()
        return request

    def _finish(self, request: Request) -> None:
        request.end = self.position
        self._pending.append(request)
        if request.key is None:
            return
        self._keys[request.key] = None
        if request.key == self._part:
            self._part, self._part_rows = b"", 0
        if len(self._keys) > _KEYS:
            del self._keys[next(iter(self._keys))]


def _short(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=_KEY_BYTES).digest()
