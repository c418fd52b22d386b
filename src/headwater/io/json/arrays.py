"""The compiled half of reading a JSON array: where its objects are, without reading them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel, small_kernel

_QUOTE, _COMMA, _BACKSLASH, _SPACE = 34, 44, 92, 32
_FIRST, _LAST, _OPEN, _CLOSE = 91, 93, 123, 125  # [ ] { }


@small_kernel
def _blank(data: NDArray[np.uint8], at: int) -> int:
    while at < len(data) and (data[at] == _SPACE or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@small_kernel
def _object_end(data: NDArray[np.uint8], at: int) -> int:
    # What follows an object that begins here, past the end where it has none.
    depth = 0
    while at < len(data):
        sign = data[at]
        if sign == _QUOTE:
            at += 1
            while at < len(data) and data[at] != _QUOTE:
                at += 2 if data[at] == _BACKSLASH else 1
        elif sign in (_OPEN, _FIRST):
            depth += 1
        elif sign in (_CLOSE, _LAST):
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(data) + 1


@kernel
def cut_array(data: NDArray[np.uint8], ends: NDArray[np.int32]) -> int:
    """Write blanks over what is between the objects of an array, and where each ends to `ends`; return how many there are.

    -1 is for what is no array of objects. Whether an object is one inside is left to who reads it.
    """
    at, size, count = _blank(data, 0), len(data), 0
    if at >= size or data[at] != _FIRST:
        return -1
    data[at] = _SPACE
    at = _blank(data, at + 1)
    if at < size and data[at] == _LAST:
        data[at] = _SPACE
        return 0 if _blank(data, at + 1) == size else -1
    while at < size and data[at] == _OPEN:
        at = _object_end(data, at)
        if at >= size:
            return -1
        ends[count], count = at, count + 1
        at = _blank(data, at)
        if at >= size:
            return -1
        sign, data[at] = data[at], _SPACE
        at = _blank(data, at + 1)
        if sign == _LAST:
            return count if at == size else -1
        if sign != _COMMA:
            return -1
    return -1
