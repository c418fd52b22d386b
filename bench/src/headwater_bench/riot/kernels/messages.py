"""Messages out of the lines of a file, a batch at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.column import Text
from headwater.data.hashing import TextArrays
from headwater.data.jit import kernel, uncompiled

_SPACE, _TAB, _RETURN, _COMMA, _ZERO, _NINE, _BRACE = 32, 9, 13, 44, 48, 57, 123


@kernel
def bare_messages(data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the messages among lines: without space around them, and without the `time,` before an object."""
    out, ends = np.empty(offsets[-1] - offsets[0], np.uint8), np.empty(len(offsets), np.int32)
    ends[0] = 0
    at, many = 0, 0
    for row in range(len(offsets) - 1):
        start, stop = int(offsets[row]), int(offsets[row + 1])
        while start < stop and (data[start] == _SPACE or _TAB <= data[start] <= _RETURN):
            start += 1
        while start < stop and (data[stop - 1] == _SPACE or _TAB <= data[stop - 1] <= _RETURN):
            stop -= 1
        if start == stop:
            continue
        comma = start
        while comma < stop and _ZERO <= data[comma] <= _NINE:
            comma += 1
        if comma > start:
            while comma < stop and (data[comma] == _SPACE or _TAB <= data[comma] <= _RETURN):
                comma += 1
            if comma < stop and data[comma] == _COMMA:
                first = comma + 1
                while first < stop and (data[first] == _SPACE or _TAB <= data[first] <= _RETURN):
                    first += 1
                if first < stop and data[first] == _BRACE:
                    start = comma + 1
        out[at : at + stop - start] = data[start:stop]
        at += stop - start
        many += 1
        ends[many] = at
    return out[:at], ends[: many + 1]


@uncompiled(bare_messages)
def _bare_messages(data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> TextArrays:
    messages = map(_without_time, Text(data, offsets).bytes_list())
    bare = Text.of_bytes([message for message in messages if message])
    return TextArrays(bare.data, bare.offsets)


def _without_time(line: bytes) -> bytes:
    line = line.strip()
    time, comma, rest = line.partition(b",")
    return rest if comma and time.strip().isdigit() and rest.lstrip().startswith(b"{") else line


def count_messages(data: bytes) -> int:
    """Return how many lines of some bytes hold a message: all that are not blank."""
    every = np.frombuffer(data, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(every == ord("\n")) + 1])
    firsts = every[starts[starts < len(every)]]
    if ((firsts == _SPACE) | ((firsts >= _TAB) & (firsts <= _RETURN))).any():  # which may be blank
        return sum(map(bool, map(bytes.strip, data.split(b"\n"))))
    return len(firsts)
