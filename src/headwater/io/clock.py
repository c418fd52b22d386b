"""Clocks: where a timed source takes the time from, so that a test can move it by hand."""

from __future__ import annotations

import time
from typing import Protocol

from headwater.clock import now_ns


class Clock(Protocol):
    """Tells the time and sleeps."""

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SteadyClock:
    """The computer's own clock; it does not jump when somebody sets the time."""

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return now_ns()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
