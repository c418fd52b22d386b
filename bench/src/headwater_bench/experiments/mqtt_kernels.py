"""The compiled half of the load: messages made at a rate, results recognised, and an echo to measure the load itself with.

A message carries its number in a run of 13 digits that begins with 14. What comes back is recognised by that number,
whatever the system under test made of the rest. Nothing here is shared with the product, so that one does not hide the
other's faults.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel

Bytes = NDArray[np.uint8]

BASE = 1_400_000_000_000  #: message 0 carries this number
DIGITS = 13
_ONE, _FOUR, _ZERO, _NINE = 49, 52, 48, 57


@kernel
def length_at(data: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Return the length of the packet at a place and where its body begins; -1 while its head is not whole."""
    length, shift = 0, 0
    at += 1
    while at < stop:
        byte = int(np.int64(data[at]))
        at += 1
        length |= (byte & 127) << shift
        if byte < 128:
            return length, at
        shift += 7
    return -1, at


@kernel
def messages(
    lines: Bytes,
    ends: NDArray[np.int64],
    places: NDArray[np.int64],
    topic: Bytes,
    qos: int,
    first: int,
    count: int,
    out: Bytes,
) -> int:
    """Write `count` messages from number `first` on, line after line with the number at its place; return their bytes."""
    at = 0
    for number in range(first, first + count):
        line = number % (len(ends) - 1)
        size = ends[line + 1] - ends[line]
        length = 2 + len(topic) + size + (2 if qos else 0)
        out[at] = 0x30 | qos << 1
        at += 1
        while length > 127:
            out[at] = length & 127 | 128
            at, length = at + 1, length >> 7
        out[at], out[at + 1], out[at + 2] = length, len(topic) >> 8, len(topic) & 255
        at += 3
        for i in range(len(topic)):
            out[at + i] = topic[i]
        at += len(topic)
        if qos:
            packet = number % 65_535 + 1
            out[at], out[at + 1] = packet >> 8, packet & 255
            at += 2
        to, source = out[at : at + size], lines[ends[line] : ends[line + 1]]
        for i in range(size):
            to[i] = source[i]
        rest, place = BASE + number, places[line] + DIGITS
        for i in range(DIGITS):
            to[place - 1 - i] = _ZERO + rest % 10
            rest //= 10
        at += size
    return at


@kernel
def results(
    data: Bytes,
    stop: int,
    now_s: float,
    first: int,
    rate: float,
    late_s: NDArray[np.float32],
    times: NDArray[np.int64],
    answers: Bytes,
) -> tuple[int, int, int, int]:
    """Take whole packets: note when each message's result came, after it was due, and how often.

    Returns where the packet begins that is none of ours (or not whole), the bytes of answers that were written, how many
    messages were acknowledged, and how many results had no number.
    """
    at, answered, acknowledged, strange = 0, 0, 0, 0
    while at + 2 <= stop:
        length, body = length_at(data, at, stop)
        after = body + length
        if length < 0 or after > stop:
            break
        kind, qos = data[at] >> 4, data[at] >> 1 & 3
        if kind == 4:
            acknowledged += 1
        elif kind == 3:
            place = body + 2 + (int(np.int64(data[body])) << 8 | int(np.int64(data[body + 1])))
            if qos > 0:
                answers[answered], answers[answered + 1] = 0x40, 2
                answers[answered + 2], answers[answered + 3] = data[place], data[place + 1]
                answered, place = answered + 4, place + 2
            number = -1
            while place + DIGITS <= after and number < 0:
                if data[place] == _ONE and data[place + 1] == _FOUR:
                    value, end = 0, place
                    while end < after and _ZERO <= data[end] <= _NINE:
                        value, end = value * 10 + int(np.int64(data[end])) - _ZERO, end + 1
                    number = value - BASE if end - place == DIGITS else -1
                    place = end
                else:
                    place += 1
            if number >= first and number - first < len(times):
                times[number - first] += 1
                late_s[number - first] = now_s - (number - first) / rate
            elif number < 0:
                strange += 1
        else:
            break
        at = after
    return at, answered, acknowledged, strange


@kernel
def echoed(data: Bytes, stop: int, letter: int) -> int:
    """Turn messages into their own results, by the last letter of their topic; return where the first is not whole."""
    at = 0
    while at + 2 <= stop:
        length, body = length_at(data, at, stop)
        if length < 0 or body + length > stop:
            break
        if data[at] >> 4 == 3:
            data[body + 1 + (int(np.int64(data[body])) << 8 | int(np.int64(data[body + 1])))] = letter
        at = body + length
    return at
