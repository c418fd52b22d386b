"""Writers with bounded room, which have a run hold its sources in time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Lock


def _nobody(share: float) -> None:
    """Hear how much room is taken."""


class BoundedWriter(ABC):
    """Tells whoever wants to know how much of its room is taken; the threads that may call `_tell_room` take turns."""

    def __init__(self) -> None:
        self._heard_by: Callable[[float], None] = _nobody
        self._telling = Lock()  # else who tells late what he saw early would have the last word

    @property
    def throttle(self) -> Callable[[float], None]:
        """What is told how much of the room is taken, so that a run holds its sources before a write has to wait."""
        return self._heard_by

    @throttle.setter
    def throttle(self, told: Callable[[float], None]) -> None:
        self._heard_by = told
        self._tell_room()

    @property
    def is_heard(self) -> bool:
        """Whether somebody holds sources when there is little room."""
        return self._heard_by is not _nobody

    def _tell_room(self) -> None:
        if self._holds:
            with self._telling:
                self._heard_by(self._share_taken())

    @property
    def _holds(self) -> bool:
        """Whether a flow is ever held for want of room."""
        return True

    @abstractmethod
    def _share_taken(self) -> float:
        """Return how much of the room is taken: 0 for none, 1 for all, more where more waits than should."""
