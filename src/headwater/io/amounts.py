"""Amounts of bytes as people write them: "1 GB", "500 kB/s"."""

from __future__ import annotations

import re

from headwater.errors import FlowError

_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*(/\s*s)?\s*", re.IGNORECASE)


def nbytes(amount: str | int) -> int:
    """Return an amount in bytes.

    >>> nbytes("1 GB"), nbytes("1.5 KiB"), nbytes(10)
    (1000000000, 1536, 10)
    """
    return _parse(amount, per_second=False)


def bytes_per_second(rate: str | int) -> int:
    """Return a rate in bytes per second.

    >>> bytes_per_second("500 kB/s")
    500000
    """
    return _parse(rate, per_second=True)


def _parse(amount: str | int, *, per_second: bool) -> int:
    if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0:
        return amount
    match = _FORM.fullmatch(amount) if isinstance(amount, str) else None
    if match and match[2].lower() in _BYTES and bool(match[3]) == per_second and float(match[1]) > 0:
        return round(float(match[1]) * _BYTES[match[2].lower()])
    example = "'1 MB/s'" if per_second else "'1 GB'"
    raise FlowError(
        f"cannot read {amount!r}: expected a number and a unit (B, kB, MB, GB, KiB, MiB), such as {example}"
    )
