"""Addresses as the command line takes them: HOST:PORT, [::1]:PORT."""

from __future__ import annotations

from headwater.errors import RunError


def address_of(option: str, text: str, example: str, *, port: int | None = None) -> tuple[str, int]:
    """Return host and port of an option; `port` is taken where none is said, and one must be said where that is None."""
    host, colon, number = text.rpartition(":")
    if port is not None and (not colon or text.endswith("]")):
        host, number = text, str(port)
    elif not colon or not number.isdecimal() or int(number) > 65535:
        raise RunError(f"{option} takes an address and a port, such as {example}; got {text!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(number)
