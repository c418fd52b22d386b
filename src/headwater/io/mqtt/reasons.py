"""What a broker means by a number, in words."""

from __future__ import annotations

#: answers to CONNECT in MQTT 3.1.1
_REFUSED_3 = {
    1: "it does not speak this version of MQTT",
    2: "it does not take this client id",
    3: "Server unavailable",
    4: "Bad user name or password",
    5: "Not authorized",
}
#: MQTT 5 has one list for all answers; what is below 128 is no failure
_REASONS_5 = {
    0x04: "it left with the will message",
    0x10: "no matching subscribers",
    0x11: "no such subscription",
    0x18: "continue authentication",
    0x19: "authenticate again",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "it does not speak this version of MQTT",
    0x85: "it does not take this client id",
    0x86: "Bad user name or password",
    0x87: "Not authorized",
    0x88: "Server unavailable",
    0x89: "Server busy",
    0x8A: "Banned",
    0x8B: "it shuts down",
    0x8C: "bad authentication method",
    0x8D: "keep-alive timed out",
    0x8E: "another client came with the same client id",
    0x8F: "it does not take this topic filter",
    0x90: "it does not take this topic",
    0x91: "packet number in use",
    0x92: "packet number not found",
    0x93: "more messages than its receive maximum",
    0x94: "topic alias not valid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "an operator put us out",
    0x99: "payload format not valid",
    0x9A: "it retains no messages",
    0x9B: "it does not serve this QoS",
    0x9C: "use another server",
    0x9D: "the server moved",
    0x9E: "it has no shared subscriptions",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time",
    0xA1: "it has no subscription identifiers",
    0xA2: "it has no wildcard subscriptions",
}
#: refusals that may be different next time
_PASSING = {(4, 3), (5, 0x88), (5, 0x89), (5, 0x8B), (5, 0x97), (5, 0x9F)}


def refusal(version: int, code: int) -> str:
    """Say why a connection was refused.

    >>> refusal(4, 5), refusal(5, 0x87), refusal(5, 0xEE)
    ('Not authorized', 'Not authorized', 'reason 0xee')
    """
    return (_REFUSED_3 if version == 4 else _REASONS_5).get(code, f"reason 0x{code:02x}")


def reason(code: int) -> str:
    """Say what one of MQTT 5's reason codes means."""
    return refusal(5, code)


def is_passing(version: int, code: int) -> bool:
    """Tell whether to try again may help."""
    return (version, code) in _PASSING
