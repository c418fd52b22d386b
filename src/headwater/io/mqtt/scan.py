"""The compiled half of receiving: packets as they lie in the buffer become columns, without a Python object for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel

Bytes = NDArray[np.uint8]

#: why a scan stopped; below 0 the broker broke the rules
MORE, CONTROL, FULL = 0, 1, 2
NO_LENGTH, TOO_LARGE, TOO_SHORT, BAD_QOS, BAD_ID, BAD_PROPERTY, BAD_ALIAS, NO_TOPIC, BAD_KIND = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
    -7,
    -8,
    -9,
)
BROKEN = {
    NO_LENGTH: "a packet whose length does not end",
    TOO_LARGE: "a packet larger than the largest that is taken",
    TOO_SHORT: "a packet that is shorter than what it holds",
    BAD_QOS: "a message of QoS 3",
    BAD_ID: "a message of QoS 1 or 2 without a number",
    BAD_PROPERTY: "a message with properties that cannot be read",
    BAD_ALIAS: "a message for a topic alias that was not agreed on",
    NO_TOPIC: "a message without a topic",
    BAD_KIND: "a packet that brokers do not send",
}

#: what is known of each packet number: not in use; message held; message held no more, but nobody could be told; QoS 2, told
FREE, HELD, DONE, TOLD = 0, 1, 2, 3
RETAINED, DUPLICATE, SUSPECT = (
    1,
    8,
    16,
)  #: bits of a message's flags; QoS lies between them. A suspect's number is in use
MOST_TOPICS = 1 << 24  #: bytes of topics that one scan hands out: an alias of two bytes may stand for 65,535
TELL_AGAIN = 3  #: among the answers: a message of QoS 2 came again, though the broker was told of it

_PUBLISH, _PUBACK, _PUBREL, _PUBCOMP = 3, 4, 6, 7


@kernel
def head(buffer: Bytes, at: int, stop: int) -> tuple[int, int]:
    """Return a packet's length after its head, and where that begins: -1 is no length, -2 is not there yet."""
    length, shift = 0, 0
    at += 1
    while at < stop and shift < 28:
        byte = int(np.int64(buffer[at]))
        at += 1
        length |= (byte & 127) << shift
        if byte < 128:
            return length, at
        shift += 7
    return (-1, at) if shift == 28 else (-2, at)


@kernel
def _two(buffer: Bytes, at: int) -> int:
    return int(np.int64(buffer[at]) << 8 | np.int64(buffer[at + 1]))


@kernel
def _alias(buffer: Bytes, at: int, stop: int) -> int:
    # Walks a message's properties: returns its topic alias, 0 where it has none, -1 where they cannot be read.
    alias = 0
    while at < stop:
        kind = buffer[at]
        at += 1
        if kind == 0x01:
            at += 1
        elif kind == 0x02:
            at += 4
        elif kind == 0x23:
            if at + 2 > stop or alias:
                return -1
            alias = _two(buffer, at)
            if alias == 0:
                return -1
            at += 2
        elif kind == 0x0B:
            length, at = head(buffer, at - 1, stop)
            if length < 0:
                return -1
        elif kind == 0x03 or kind == 0x08 or kind == 0x09 or kind == 0x26:
            for _ in range(2 if kind == 0x26 else 1):
                if at + 2 > stop:
                    return -1
                at += 2 + _two(buffer, at)
        else:
            return -1
    return alias if at == stop else -1


@kernel
def _fields(buffer: Bytes, at: int, stop: int, qos: int, has_properties: bool) -> tuple[int, int, int, int]:
    # The parts of a PUBLISH: the size of its topic, below 0 if something is wrong; number, alias, where its payload begins.
    if at + 2 > stop:
        return TOO_SHORT, 0, 0, 0
    size, number, alias = _two(buffer, at), 0, 0
    at += 2 + size
    if qos == 3:
        return BAD_QOS, 0, 0, 0
    if qos > 0:
        if at + 2 > stop:
            return TOO_SHORT, 0, 0, 0
        number = _two(buffer, at)
        at += 2
        if number == 0:
            return BAD_ID, 0, 0, 0
    if has_properties:
        if at >= stop:
            return TOO_SHORT, 0, 0, 0
        length, at = head(buffer, at - 1, stop)
        if length < 0 or at + length > stop:
            return BAD_PROPERTY, 0, 0, 0
        alias = _alias(buffer, at, at + length)
        if alias < 0:
            return BAD_PROPERTY, 0, 0, 0
        at += length
    if at > stop:
        return TOO_SHORT, 0, 0, 0
    if size == 0 and alias == 0:
        return NO_TOPIC, 0, 0, 0
    return size, number, alias, at


@kernel
def copy(source: Bytes, start: int, size: int, out: Bytes, at: int) -> int:
    """Copy bytes; return where they end."""
    to, piece = out[at : at + size], source[start : start + size]
    for i in range(size):  # in machine code faster than to assign the slice, by far
        to[i] = piece[i]
    return at + size


@kernel
def _room(out: Bytes, size: int, more: int) -> Bytes:
    if size + more <= len(out):
        return out
    wider = np.empty(2 * len(out) + more, np.uint8)
    copy(out, 0, size, wider, 0)
    return wider


@kernel
def _count(buffer: Bytes, at: int, stop: int, largest: int, most: int) -> tuple[int, int, int, int, int]:
    # Whole packets from `at` on, up to one that is not for this scan: where they end, why, messages, their bytes, answers.
    messages, size, answers = 0, 0, 0
    while at < stop:
        kind = buffer[at] >> 4
        length, body = head(buffer, at, stop)
        if length == -1:
            return at, NO_LENGTH, messages, size, answers
        if length > largest:
            return at, TOO_LARGE, messages, size, answers
        if kind == _PUBLISH and messages == most:
            return at, FULL, messages, size, answers
        if kind == 0 or kind == 1 or kind == 8 or kind == 10 or kind == 12:
            return at, BAD_KIND, messages, size, answers
        if length == -2 or body + length > stop:
            return at, MORE, messages, size, answers
        if kind == _PUBLISH:
            messages += 1
            size += length
            answers += 1  # a message of QoS 2 that came again is answered
        elif _PUBACK <= kind <= _PUBCOMP:
            if length < 2:
                return at, TOO_SHORT, messages, size, answers
            answers += 1
        else:
            return at, CONTROL, messages, size, answers
        at = body + length
    return at, MORE, messages, size, answers


@kernel
def scan(
    buffer: Bytes,
    at: int,
    stop: int,
    version: int,
    largest: int,
    most: int,
    states: Bytes,
    aliases: Bytes,
    alias_sizes: NDArray[np.int64],
) -> tuple[int, int, Bytes, Any, Bytes, Any, Any, Bytes, Any]:
    """Take whole packets apart, up to `most` messages or to a packet that is neither message nor acknowledgement.

    Returns where it stopped and why; payloads and topics of the messages, each as bytes and offsets; their packet
    numbers and flags (the low bits of a packet's first byte, and SUSPECT); and the answers, each a kind of packet, a number
    and a reason. `states` is what is known of each packet number, `aliases` and `alias_sizes` the topics that stand for a
    number: all three are kept up to date.
    """
    end, why, messages, size, answers_room = _count(buffer, at, stop, largest, most)
    payloads, topics = np.empty(size, np.uint8), np.empty(32 * messages, np.uint8)
    payload_ends, topic_ends = np.empty(messages + 1, np.int32), np.empty(messages + 1, np.int32)
    numbers, flags = np.empty(messages, np.uint16), np.empty(messages, np.uint8)
    answers = np.empty((answers_room, 3), np.int64)
    count, answer_count, payload_end, topic_end = 0, 0, 0, 0
    payload_ends[0] = topic_ends[0] = 0
    while at < end:
        first, (length, body) = int(np.int64(buffer[at])), head(buffer, at, stop)
        after = body + length
        if first >> 4 != _PUBLISH:
            number = _two(buffer, body)
            answers[answer_count, 0], answers[answer_count, 1] = first >> 4, number
            answers[answer_count, 2] = buffer[body + 2] if length > 2 else 0
            answer_count += 1
            if first >> 4 == _PUBREL:
                states[number] = FREE
            at = after
            continue
        qos = first >> 1 & 3
        topic_size, number, alias, payload = _fields(buffer, body, after, qos, version == 5)
        if (topic_size >= 0 and alias > len(alias_sizes)) or (topic_size == 0 and alias_sizes[alias - 1] == 0):
            topic_size = BAD_ALIAS
        if topic_size < 0:
            end, why = at, topic_size
            break
        if topic_end > MOST_TOPICS:
            end, why = at, FULL
            break
        if alias > 0 and topic_size > 0:
            copy(buffer, body + 2, topic_size, aliases, (alias - 1) * 65_536)
            alias_sizes[alias - 1] = topic_size
        if qos == 2 and states[number] == TOLD:
            answers[answer_count, 0], answers[answer_count, 1], answers[answer_count, 2] = TELL_AGAIN, number, 0
            answer_count += 1
            at = after
            continue
        if topic_size > 0:
            topics = _room(topics, topic_end, topic_size)
            topic_end = copy(buffer, body + 2, topic_size, topics, topic_end)
        else:
            alias_size = int(alias_sizes[alias - 1])
            topics = _room(topics, topic_end, alias_size)
            topic_end = copy(aliases, (alias - 1) * 65_536, alias_size, topics, topic_end)
        payload_end = copy(buffer, payload, after - payload, payloads, payload_end)
        numbers[count], flags[count] = number, first & 15
        if qos > 0:
            if states[number] != FREE:
                flags[count] |= SUSPECT
            else:
                states[number] = HELD
        count += 1
        payload_ends[count], topic_ends[count] = payload_end, topic_end
        at = after
    return (
        end, why, payloads[:payload_end], payload_ends[: count + 1], topics[:topic_end], topic_ends[: count + 1],
        numbers[:count], flags[:count], answers[:answer_count],
    )  # fmt: skip


@kernel
def whole_texts(data: Bytes, offsets: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Tell which texts are UTF-8."""
    fit = np.ones(len(offsets) - 1, np.bool_)
    for i in range(len(fit)):
        at, stop = int(offsets[i]), int(offsets[i + 1])
        while at < stop and fit[i]:
            byte = data[at]
            at += 1
            if byte < 128:
                continue
            low, high = 0x80, 0xBF  # what the second byte may be: tells overlong forms and surrogates
            if 0xC2 <= byte <= 0xDF:
                more = 1
            elif 0xE0 <= byte <= 0xEF:
                more = 2
                low, high = (0xA0 if byte == 0xE0 else 0x80), (0x9F if byte == 0xED else 0xBF)
            elif 0xF0 <= byte <= 0xF4:
                more = 3
                low, high = (0x90 if byte == 0xF0 else 0x80), (0x8F if byte == 0xF4 else 0xBF)
            else:
                more = 4  # no first byte
            if at + more > stop or more == 4:
                fit[i] = False
                break
            for _ in range(more):
                if not low <= data[at] <= high:
                    fit[i] = False
                low, high = 0x80, 0xBF
                at += 1
    return fit
