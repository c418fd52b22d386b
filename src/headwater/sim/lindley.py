"""Queues over whole arrays: who waits how long follows from the record before, without a list of events."""

from __future__ import annotations

import numpy as np

from headwater.data.jit import kernel
from headwater.net.arrays import Floats


@kernel
def serve(arrive: Floats, service: Floats, leave: Floats) -> float:
    """Write when each record leaves a first-come-first-served server; return the seconds it was busy."""
    free = 0.0
    busy = 0.0
    for i in range(len(arrive)):
        start = arrive[i] if arrive[i] > free else free
        free = start + service[i]
        busy += service[i]
        leave[i] = free
    return busy


@kernel
def merge(a: Floats, a_born: Floats, b: Floats, b_born: Floats) -> tuple[Floats, Floats]:
    """Merge two streams of rising times, each with the moment its records were born."""
    n, m = len(a), len(b)
    times, born = np.empty(n + m), np.empty(n + m)
    i = j = 0
    for at in range(n + m):
        if j >= m or (i < n and a[i] <= b[j]):
            times[at], born[at] = a[i], a_born[i]
            i += 1
        else:
            times[at], born[at] = b[j], b_born[j]
            j += 1
    return times, born
