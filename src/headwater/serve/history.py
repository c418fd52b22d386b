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
        self._samples: deque[tuple[float, bytes]] = deque()
        self.nbytes = 0

    def add(self, at_s: float, document: bytes) -> None:
        """Keep a document, unless the last one was kept only just now; `at_s` is any clock that only goes forward."""
        if self._samples and at_s - self._samples[-1][0] < self._every_s - 0.5:
            return
        packed = zlib.compress(document, 1)
        self._samples.append((at_s, packed))
        self.nbytes += len(packed)
        while self._samples and (self._samples[0][0] < at_s - self._span_s or self.nbytes > self._largest):
            self.nbytes -= len(self._samples.popleft()[1])

    def since(self, at_s: float) -> Iterator[bytes]:
        """Return the documents from a moment on, oldest first."""
        for at, packed in list(self._samples):
            if at >= at_s:
                yield zlib.decompress(packed)
