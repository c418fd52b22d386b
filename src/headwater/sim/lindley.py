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
def merge(a: Floats, a_created: Floats, b: Floats, b_created: Floats) -> tuple[Floats, Floats]:
    """Merge two streams of rising times, each with the moment its records were created."""
    n, m = len(a), len(b)
    times, created = np.empty(n + m), np.empty(n + m)
    i = j = 0
    for at in range(n + m):
        if j >= m or (i < n and a[i] <= b[j]):
            times[at], created[at] = a[i], a_created[i]
            i += 1
        else:
            times[at], created[at] = b[j], b_created[j]
            j += 1
    return times, created
