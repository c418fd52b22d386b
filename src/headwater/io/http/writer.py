"""Posting records as they come."""

from __future__ import annotations

import random
import time
from secrets import token_hex

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.http.endpoint import Http
from headwater.io.http.form import Form
from headwater.io.http.poster import Poster, UnreachedError
from headwater.io.sifting import attempt_each

_FIRST_S, _MOST_S = 0.1, 5.0  #: between two attempts


class Posts:
    """Records as requests, each with a key that its records give it: the same when they are sent again."""

    def __init__(self, sink: Http, schema: Schema) -> None:
        self.records, self._form, self._poster = sink.records, Form(sink.form, schema), Poster(sink)
        # by its key, what the server has made of a request: nothing, it took it, or why it refused it
        self._answers: dict[str, str] = {}

    @property
    def answered(self) -> int:
        """Requests that the server has answered, of what is not there as a whole."""
        return len(self._answers)

    def post(self, batch: Batch, key: str, first: int = 0) -> Refused:
        """Post records, which are known by a key and the number of the first; return those that the server refuses.

        Raises UnreachedError if it does not answer one of the requests, for now: then post all of them again, likewise.
        Those that it has answered are not sent again. Where it has answered some since the last time that it did not, that
        is done here and at once: a link that breaks off now and then is no server that is away.
        """
        while True:
            before = self.answered
            try:
                return self._post(batch, key, first)
            except UnreachedError as error:
                if error.after_s or self.answered == before:
                    raise

    def _post(self, batch: Batch, key: str, first: int) -> Refused:
        refusals: Refused = {}
        for start in range(0, batch.length, self.records):
            part = batch.slice(start, min(batch.length, start + self.records))
            unfit = attempt_each(part, _NumberedPosts(self, key, first + start).post)
            refusals |= {start + row: why for row, why in unfit.items()}
        return refusals

    def post_one(self, batch: Batch, key: str) -> None:
        """Post one request, unless the server answered it when this was tried before; raises InputError if it refuses it."""
        if key not in self._answers:
            try:
                self._poster.post(self._form.body(batch), self._form.content_type, key)
                self._answers[key] = ""
            except InputError as error:
                self._answers[key] = str(error)
        if why := self._answers[key]:
            raise InputError(why)

    def forget(self) -> None:
        """Remember no more what was answered: all of it was, and nobody will post it again."""
        self._answers.clear()

    def close(self) -> None:
        """Let the connection go."""
        self._poster.close()


class _NumberedPosts:
    """Posts parts of some records, and knows which each part has: they are tried in order, halves after wholes."""

    def __init__(self, posts: Posts, key: str, first: int) -> None:
        self._posts, self._key, self._next = posts, key, first

    def post(self, part: Batch) -> None:
        key = f"{self._key}-{self._next}-{self._next + part.length}"
        try:
            self._posts.post_one(part, key)
        except InputError:
            if part.length == 1:
                self._next += 1  # it is refused, and left behind
            raise
        self._next += part.length


class HttpWriter:
    """An open URL; a batch that is written is there."""

    def __init__(self, sink: Http, schema: Schema) -> None:
        self._posts, self._patience_s = Posts(sink, schema), sink.patience_s
        self._name, self._number = token_hex(6), 0

    def write(self, batch: Batch) -> Refused:
        """Post records, and try again for a while what is not taken; the rest is refused with the reason."""
        self._number += 1
        position = 0
        refusals: Refused = {}
        until_s, failures = 0.0, 0
        while position < batch.length:  # a request at a time, so that what was taken is known
            part = batch.slice(position, min(batch.length, position + self._posts.records))
            before = self._posts.answered
            try:
                unfit = self._posts.post(part, f"{self._name}-{self._number}", position)
            except UnreachedError as error:
                failures = 1 if self._posts.answered > before else failures + 1
                until_s = until_s if failures > 1 else time.monotonic() + self._patience_s
                pause_s = max(
                    min(_MOST_S, _FIRST_S * 2 ** min(failures - 1, 10)) * random.uniform(0.5, 1), error.after_s
                )
                if time.monotonic() + pause_s > until_s:
                    self._posts.forget()
                    if not position:
                        raise InputError(str(error)) from None
                    return refusals | dict.fromkeys(range(position, batch.length), str(error))
                time.sleep(pause_s)
                continue
            refusals |= {position + row: why for row, why in unfit.items()}
            self._posts.forget()
            position, failures = position + part.length, 0
        return refusals

    def write_keyed(self, batch: Batch, key: str) -> Refused:
        """Post records under a key that is theirs; raises InputError if not all are taken: then call it again, likewise."""
        try:
            refusals = self._posts.post(batch, key)
        except UnreachedError as error:
            raise InputError(str(error)) from None
        self._posts.forget()
        return refusals

    def close(self) -> None:
        """Let the connection go."""
        self._posts.close()
