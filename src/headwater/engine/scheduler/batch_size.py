"""How many of the waiting records one activation takes."""

from __future__ import annotations

from typing import Literal

#: all of a queue, half of it, or at most this many records (the three that the EdgeWise paper compares)
Take = Literal["all", "half"] | int


def batch_size(take: Take, waiting: int) -> int:
    """Return how many of the waiting records an activation takes.

    >>> batch_size("all", 75), batch_size("half", 75), batch_size(50, 75)
    (75, 38, 50)
    """
    if take == "all":
        return waiting
    if take == "half":
        return (waiting + 1) // 2
    return min(waiting, take)
