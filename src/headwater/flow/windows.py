"""Windows: which records are counted together."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal, get_args

from headwater.errors import FlowError, listed, suggestion
from headwater.flow.duration import Duration, duration_text, microseconds

#: Whose time: that which records tell, or that of this machine's clock when they come.
TimeKind = Literal["event", "processing"]


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of equal length in event time, or processing time, each starting where the last one ended.

    A record exactly on a border belongs to the window that it opens.

    >>> Tumbling("10 s").size_us
    10000000
    """

    size: Duration
    time: TimeKind = "event"

    def __post_init__(self) -> None:
        _above_zero("window size", self.size_us)
        _check_time(self.time)

    @property
    def size_us(self) -> int:
        """The length in microseconds."""
        return microseconds(self.size)

    def __str__(self) -> str:
        return f"tumbling {duration_text(self.size_us)}{_of(self.time)}"


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one length in event time that start at regular intervals and overlap."""

    size: Duration
    every: Duration
    time: TimeKind = "event"

    def __post_init__(self) -> None:
        _check_time(self.time)
        _above_zero("window size", self.size_us)
        _above_zero("window interval", self.every_us)
        if self.every_us > self.size_us:
            raise FlowError(
                f"a sliding window of {duration_text(self.size_us)} every {duration_text(self.every_us)} would skip "
                "records; the interval must not be longer than the window"
            )

    @property
    def size_us(self) -> int:
        """The length in microseconds."""
        return microseconds(self.size)

    @property
    def every_us(self) -> int:
        """The distance between the starts of two windows in microseconds."""
        return microseconds(self.every)

    @property
    def slice_us(self) -> int:
        """The longest piece of time of which every window is a whole number."""
        return gcd(self.size_us, self.every_us)

    def __str__(self) -> str:
        return f"sliding {duration_text(self.size_us)} every {duration_text(self.every_us)}{_of(self.time)}"


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that last as long as records of a key follow each other within `gap` of event time."""

    gap: Duration
    time: TimeKind = "event"

    def __post_init__(self) -> None:
        _check_time(self.time)
        _above_zero("session gap", self.gap_us)

    @property
    def gap_us(self) -> int:
        """The gap in microseconds."""
        return microseconds(self.gap)

    def __str__(self) -> str:
        return f"session gap {duration_text(self.gap_us)}{_of(self.time)}"


@dataclass(frozen=True, slots=True)
class Count:
    """Windows of `size` records of a key; with `every`, the last `size` records after each `every` of them.

    A window that is not full when the stream ends gives no result.
    """

    size: int
    every: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("count window size", self.size), ("count window interval", self.every)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise FlowError(f"{what} must be a whole number of records above 0; got {value!r}")

    def __str__(self) -> str:
        return f"count {self.size}" + (f" every {self.every}" if self.every else "")


TimeWindow = Tumbling | Sliding | Session
Window = TimeWindow | Count


def by_processing_time(window: Window) -> bool:
    """Return whether a window closes by this machine's clock, and holds what comes until then."""
    return not isinstance(window, Count) and window.time == "processing"


def _of(time: TimeKind) -> str:
    return "" if time == "event" else " of processing time"


def _check_time(time: object) -> None:
    choices = get_args(TimeKind)
    if time not in choices:
        raise FlowError(f"a window is of time {listed(choices)}; got {time!r}{suggestion(str(time), choices)}")


def _above_zero(what: str, value_us: int) -> None:
    if value_us <= 0:
        raise FlowError(f"{what} must be above 0; got {duration_text(value_us)}")
