"""What every compiled reader of JSON needs: blanks, plain strings, and names that are looked for.

Each stops at the text's end and at anything unusual, and a position of -1 means: not sure. So whatever comes out is exactly
what a JSON library would have found, and a library decides about the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import small_kernel

UNSURE = -1
QUOTE, BACKSLASH, COMMA, COLON = 34, 92, 44, 58
OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93


@small_kernel
def blank_end(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return where blanks that begin here end."""
    while at < stop and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@small_kernel
def string_end(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the place of the closing quote of a plain ASCII string without escapes that starts at `at`, or -1."""
    while at < stop:
        c = data[at]
        if c == QUOTE:
            return at
        if c == BACKSLASH or c < 32 or c > 126:
            return UNSURE
        at += 1
    return UNSURE


@small_kernel
def field_called(
    data: NDArray[np.uint8], start: int, stop: int, names: NDArray[np.uint8], ends: NDArray[np.integer], guess: int
) -> int:
    """Return the number of the field called `data[start:stop]`, or -1; the guess, at most their count, is tried first."""
    count = len(ends) - 1
    for step in range(count):
        field = guess + step
        if field >= count:
            field -= count
        first = ends[field]
        if ends[field + 1] - first == stop - start:
            same = start
            while same < stop and data[same] == names[first + same - start]:
                same += 1
            if same == stop:
                return field
    return -1
