"""Gathering texts of variable length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.data.jit import kernel, uncompiled

Array = npt.NDArray[Any]

_LARGEST = 2**31 - 1  # bytes that 32-bit offsets reach


@kernel
def gather(data: Array, offsets: Array, rows: Array) -> tuple[Array, Array]:
    """Return the bytes and offsets of the texts at `rows`, packed."""
    out_offsets = np.empty(len(rows) + 1, np.int32)
    out_offsets[0] = 0
    total, runs = 0, 0
    for i in range(len(rows)):
        total += offsets[rows[i] + 1] - offsets[rows[i]]
        out_offsets[i + 1] = total
        runs += i == 0 or rows[i] != rows[i - 1] + 1
    if total > _LARGEST:
        raise OverflowError("a text column holds 2 GiB at most; these texts have more")
    out = np.empty(total, np.uint8)
    together = 2 * runs < len(rows)  # neighbours are one copy where most have some; looking for them is not free
    i = 0
    while i < len(rows):
        first = i
        i += 1
        while together and i < len(rows) and rows[i] == rows[i - 1] + 1:
            i += 1
        start = offsets[rows[first]]
        size = out_offsets[i] - out_offsets[first]
        target, source = out[out_offsets[first] : out_offsets[first] + size], data[start : start + size]
        for j in range(size):  # in machine code faster than to assign the slice, by far
            target[j] = source[j]
    return out, out_offsets


@uncompiled(gather)
def _gather(data: Array, offsets: Array, rows: Array) -> tuple[Array, Array]:
    starts = offsets[rows].astype(np.int64)
    sizes = offsets[rows + 1] - starts
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(rows) else 0
    if total > _LARGEST:
        raise OverflowError("a text column holds 2 GiB at most; these texts have more")
    out_offsets = np.zeros(len(rows) + 1, np.int32)
    out_offsets[1:] = ends
    return data[np.repeat(starts - ends + sizes, sizes) + np.arange(total)], out_offsets
