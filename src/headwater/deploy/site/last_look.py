"""What takes its time to find out: whoever asks has the last that was found, and a thread looks anew if that is old."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from headwater.errors import HeadwaterError

T = TypeVar("T")
log = logging.getLogger("headwater.site")


class LastLook(Generic[T]):
    """The last that was found; nobody looks while nobody asks, so that there is nothing to close."""

    def __init__(self, look: Callable[[], T], every_s: float, first: T) -> None:
        """Look each `every_s` seconds at most; `first` is the answer until something was found."""
        self._look, self._every_s, self._value = look, every_s, first
        self._error: HeadwaterError | None = None
        self._lock = threading.Lock()
        self._looking = False
        self._due_s = 0.0

    @property
    def value(self) -> T:
        """What was found last; raises what the last look did, once a look has failed."""
        with self._lock:
            if not self._looking and time.monotonic() >= self._due_s:
                self._looking = True
                threading.Thread(target=self._look_anew, name="look", daemon=True).start()
            if self._error is not None:
                raise self._error
            return self._value

    def _look_anew(self) -> None:
        value, error = self._value, None
        try:
            value = self._look()
        except HeadwaterError as failed:
            error = failed
            if self._error is None:
                log.warning("%s", failed)
        finally:
            with self._lock:
                self._value, self._error = value, error
                self._looking, self._due_s = False, time.monotonic() + self._every_s
