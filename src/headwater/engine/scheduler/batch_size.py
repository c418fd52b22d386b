"""How many of the waiting records one activation takes."""

from __future__ import annotations

from typing import Literal

#: all of a queue, half of it, or at most this many records (the three that the EdgeWise paper compares)
Take = Literal["all", "half"] | int

#: What a step takes at most while kernels of it are not compiled, as long as it takes a compiled one for a hundred times as
#: many: all that it has taken it finishes uncompiled, even if it is compiled meanwhile.
UNCOMPILED = 256


def batch_size(take: Take, waiting: int, *, uncompiled: bool = False) -> int:
    """Return how many of the waiting records an activation takes.

    >>> batch_size("all", 75), batch_size("half", 75), batch_size(50, 75), batch_size("all", 15_090, uncompiled=True)
    (75, 38, 50, 256)
    """
    if uncompiled:
        return min(batch_size(take, waiting), UNCOMPILED)
    if take == "all":
        return waiting
    if take == "half":
        return (waiting + 1) // 2
    return min(waiting, take)
