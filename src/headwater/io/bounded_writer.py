"""Writers with bounded room, which have a run hold its sources in time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Lock


def _nobody(share: float) -> None:
    """Ignore the fill level."""


class BoundedWriter(ABC):
    """Reports its fill level to a listener; the threads that may call `_tell_room` take turns."""

    def __init__(self) -> None:
        self._listener: Callable[[float], None] = _nobody
        self._lock = Lock()  # else who tells late what he saw early would have the last word

    @property
    def throttle(self) -> Callable[[float], None]:
        """Called with the fill level, so that a run holds its sources before a write has to wait."""
        return self._listener

    @throttle.setter
    def throttle(self, listener: Callable[[float], None]) -> None:
        self._listener = listener
        self._tell_room()

    @property
    def is_heard(self) -> bool:
        """Whether a listener holds sources when there is little room."""
        return self._listener is not _nobody

    def _tell_room(self) -> None:
        if self._holds:
            with self._lock:
                self._listener(self._share_taken())

    @property
    def _holds(self) -> bool:
        """Whether a flow is ever held for want of room."""
        return True

    @abstractmethod
    def _share_taken(self) -> float:
        """Return the fill level: 0 for empty, 1 for full, more where more waits than should."""
