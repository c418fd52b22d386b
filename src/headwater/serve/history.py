"""Samples of the last hour, small: every few seconds one, packed, in bounded memory whatever a flow's size."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

EVERY_S = 5.0
SPAN_S = 3600.0
_LARGEST = 4 * 2**20  #: bytes kept of one flow


class History:
    """Keeps a document every so often, those of the last hour; the oldest go first where they are too large."""

    def __init__(self, every_s: float = EVERY_S, span_s: float = SPAN_S, largest: int = _LARGEST) -> None:
        self._every_s, self._span_s, self._largest = every_s, span_s, largest
        self._kept: deque[tuple[float, bytes]] = deque()
        self.nbytes = 0

    def add(self, at_s: float, document: bytes) -> None:
        """Keep a document, unless the last one was kept only just now; `at_s` is any clock that only goes forward."""
        if self._kept and at_s - self._kept[-1][0] < self._every_s - 0.5:
            return
        packed = zlib.compress(document, 1)
        self._kept.append((at_s, packed))
        self.nbytes += len(packed)
        while self._kept and (self._kept[0][0] < at_s - self._span_s or self.nbytes > self._largest):
            self.nbytes -= len(self._kept.popleft()[1])

    def since(self, at_s: float) -> Iterator[bytes]:
        """Return the documents from a moment on, oldest first."""
        for at, packed in list(self._kept):
            if at >= at_s:
                yield zlib.decompress(packed)
