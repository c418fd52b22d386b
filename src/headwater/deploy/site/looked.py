"""What takes its time to find out: a thread looks now and then, and whoever asks has the last that was found, at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from headwater.errors import HeadwaterError

T = TypeVar("T")
log = logging.getLogger("headwater.site")


class Looked(Generic[T]):
    """The last that was found; looking begins with the first question."""

    def __init__(self, look: Callable[[], T], every_s: float, first: T) -> None:
        """Look each `every_s` seconds; `first` is the answer until something was found."""
        self._look, self._every_s, self._value = look, every_s, first
        self._error: HeadwaterError | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def value(self) -> T:
        """What was found last; raises what the last look did, once a look has failed."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="look", daemon=True)
                self._thread.start()
            if self._error is not None:
                raise self._error
            return self._value

    def _keep(self) -> None:
        idle = threading.Event()
        while True:
            error: HeadwaterError | None = None
            try:
                self._value = self._look()
            except HeadwaterError as failed:
                error = failed
                if self._error is None:
                    log.warning("%s", failed)
            with self._lock:
                self._error = error
            idle.wait(self._every_s)
