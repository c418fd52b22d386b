"""The dashboard's end of the API. Viewers who ask for the same at the same moment share one answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from headwater.web.settings import FLOW_PAGES

_ANSWER_S = 2.5
_LONG_S = 330.0  #: a replay stops the flow, runs it over the letters, and starts it again
_CACHE_S = 60.0
_ROOT = "/api/v1"


class ApiError(Exception):
    """A request has failed: the error of the server, or that it does not answer."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status  #: of HTTP; 0 where nobody answers


@dataclass
class _Answer:
    at_s: float = -1e9
    value: Any = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Api:
    """Asks a server of flows, and no other machine: proxies of the environment are not heeded."""

    def __init__(
        self,
        url: str,
        token: str,
        pages: Sequence[str] = FLOW_PAGES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url, self.pages = url, tuple(pages)  #: pages that it answers for
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_ANSWER_S,
            trust_env=False,
            transport=transport,
        )
        self._answers: dict[str, _Answer] = {}

    async def get(self, path: str, fresh_s: float = 0.0, *, patience_s: float = _ANSWER_S) -> Any:
        """Return the document at a path under /api/v1; one that was asked for less than `fresh_s` ago will do."""
        answer = self._answers.setdefault(path, _Answer())
        async with answer.lock:
            if time.monotonic() - answer.at_s >= fresh_s:
                answer.value = await self._request("GET", path, timeout_s=patience_s)
                answer.at_s = time.monotonic()
            document = answer.value
        self._forget()
        return document

    async def post(self, path: str, body: Any = None, *, changes: bool = True) -> Any:
        """Have something done, and return what came of it; unless it `changes` nothing, all is asked for anew."""
        if changes:
            self._answers.clear()
        return await self._request("POST", path, body, _LONG_S)

    async def _request(self, method: str, path: str, body: Any = None, timeout_s: float = _ANSWER_S) -> Any:
        payload = None if body is None else msgspec.json.encode(body)
        head = {} if payload is None else {"Content-Type": "application/json"}
        try:
            answer = await self._http.request(method, _ROOT + path, headers=head, timeout=timeout_s, content=payload)
            document = msgspec.json.decode(answer.content)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            reason = str(error) or type(error).__name__
            raise ApiError(f"The server at {self.url} does not answer ({reason}). Is it running?") from None
        if answer.status_code >= 400:
            raise ApiError(str(document.get("error", answer.status_code)), answer.status_code)
        return document

    def _forget(self) -> None:
        """Forget answers that are not asked for any more."""
        if len(self._answers) > 50:
            old_s = time.monotonic() - _CACHE_S
            self._answers = {p: a for p, a in self._answers.items() if a.at_s > old_s or a.lock.locked()}


def of_flow(name: str, *parts: str) -> str:
    """Return the path of a flow, or of something of it.

    >>> of_flow("a/b", "metrics")
    '/flows/a%2Fb/metrics'
    """
    return "/".join(["/flows", quote(name, safe=""), *parts])
