"""The compiled half of sending: a column of payloads becomes packets in one buffer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel
from headwater.io.mqtt.scan import Bytes, copy

NUMBERS = 65_535  #: packet numbers that there are, from 1 on


@kernel
def publishes(
    payloads: Bytes,
    payload_ends: NDArray[np.int32],
    topics: Bytes,
    topic_ends: NDArray[np.int32],
    properties: Bytes,
    property_ends: NDArray[np.int32],
    first: int,
    sequence: int,
) -> tuple[Bytes, NDArray[np.int64]]:
    """Return a PUBLISH for each payload, all in a row, and where each ends; one topic serves all, or each has its own.

    So it is with properties: what MQTT 5 has before the payload, their length included, and MQTT 3.1.1 has not.
    `first` is the first byte of each packet: kind, QoS and whether the broker keeps it. The n-th message of a connection has
    the packet number n % 65535 + 1, and `sequence` is the n of the first.
    """
    count, qos = len(payload_ends) - 1, first >> 1 & 3
    each, one_topic, one_property = 2 if qos > 0 else 0, len(topic_ends) == 2, len(property_ends) == 2
    ends = np.empty(count, np.int64)
    total = 0
    for i in range(count):
        topic = 0 if one_topic else i
        own = 0 if one_property else i
        length = 2 + int(topic_ends[topic + 1]) - int(topic_ends[topic]) + each
        length += int(property_ends[own + 1]) - int(property_ends[own])
        length += int(payload_ends[i + 1]) - int(payload_ends[i])
        total += 1 + length + (1 if length < 128 else 2 if length < 16_384 else 3 if length < 2_097_152 else 4)
        ends[i] = total
    out = np.empty(total, np.uint8)
    at = 0
    for i in range(count):
        topic = 0 if one_topic else i
        topic_start, payload_start = int(topic_ends[topic]), int(payload_ends[i])
        topic_size, payload_size = int(topic_ends[topic + 1]) - topic_start, int(payload_ends[i + 1]) - payload_start
        own = 0 if one_property else i
        property_start = int(property_ends[own])
        property_size = int(property_ends[own + 1]) - property_start
        out[at] = first
        at += 1
        length = 2 + topic_size + each + property_size + payload_size
        while length > 127:
            out[at] = length & 127 | 128
            length >>= 7
            at += 1
        out[at], out[at + 1], out[at + 2] = length, topic_size >> 8, topic_size & 255
        at = copy(topics, topic_start, topic_size, out, at + 3)
        if qos > 0:
            number = (sequence + i) % NUMBERS + 1
            out[at], out[at + 1] = number >> 8, number & 255
            at += 2
        at = copy(properties, property_start, property_size, out, at)
        at = copy(payloads, payload_start, payload_size, out, at)
    return out, ends


@kernel
def first_flying(states: Bytes, first: int, stop: int) -> int:
    """Return the first message from `first` on, before `stop`, that the broker has not answered for."""
    while first < stop and states[first % NUMBERS + 1] == 0:
        first += 1
    return first
