"""What a broker means by a number, in words."""

from __future__ import annotations

FAILED = 0x80  #: from here on an answer of MQTT 5 says no
IN_USE, NOT_FOUND = 0x91, 0x92  #: of packet numbers
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
_PASSING = {3, 0x88, 0x89, 0x8B, 0x97, 0x9F}
_ADVICE = dict.fromkeys(
    (4, 5, 0x86, 0x87), "are user and password right, and may this client connect?"
) | dict.fromkeys((1, 0x84), "version is '3.1.1' unless it is given; does the broker speak another?")


def refusal(code: int) -> str:
    """Say why a connection was refused: a broker of MQTT 3.1.1 has its own numbers, below 128, whatever it was asked in.

    >>> refusal(5), refusal(0x87), refusal(0xEE)
    ('Not authorized', 'Not authorized', 'reason 0xee')
    """
    return reason(code) if code >= FAILED else _REFUSED_3.get(code, f"reason 0x{code:02x}")


def advice(code: int) -> str:
    """Return what to look at when a connection was refused, if that is known."""
    return _ADVICE.get(code, "")


def reason(code: int) -> str:
    """Say what one of MQTT 5's reason codes means."""
    return _REASONS_5.get(code, f"reason 0x{code:02x}")


def is_passing(code: int) -> bool:
    """Tell whether to try again may help."""
    return code in _PASSING
