"""The number of the batch to which each record belongs; batches of a window are numbered as they open."""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headwater.data.jit import kernel

NONE = -(2**63)  #: no batch is open


@kernel
def batches_by_length(windows, size, number, counts, out):
    """Count `size` records into each batch; the batch is over with its last one."""
    for i in range(len(windows)):
        w = windows[i]
        if counts[w] == NONE:
            counts[w] = 0
        out[i] = number[w]
        counts[w] += 1
        if counts[w] == size:
            number[w] += 1
            counts[w] = 0


@kernel
def batches_by_time(windows, times, size, number, begun, last, out):
    """Begin with the first record and end every `size`; a record on the border belongs to the batch that it opens.

    Time does not run back in a window: a record counts at least as of the `last` one.
    """
    for i in range(len(windows)):
        w = windows[i]
        last[w] = max(last[w], times[i])
        if begun[w] == NONE:
            begun[w] = last[w]
        passed = (last[w] - begun[w]) // size
        if passed > 0:
            number[w] += 1
            begun[w] += passed * size
        out[i] = number[w]


@kernel
def sessions(windows, times, gap, number, last, out):
    """Begin a new batch after a pause of more than `gap`."""
    for i in range(len(windows)):
        w = windows[i]
        if last[w] != NONE and times[i] - last[w] > gap:
            number[w] += 1
        last[w] = max(last[w], times[i])
        out[i] = number[w]
