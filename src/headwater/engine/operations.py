"""A counted number of whole-number operations, to tell how many a core does in a second."""

from __future__ import annotations

from headwater.data.jit import kernel

PER_TURN = 20
"""Multiply, add, mask, shift and exclusive or, on four chains that do not wait for each other."""


@kernel
def operate(turns: int) -> int:
    """Do `turns` times `PER_TURN` operations; what it returns depends on each of them, so none can be left out."""
    a, b, c, d = 1, 2, 3, 4
    for _ in range(turns):
        a = (a * 1103515245 + 12345) & 0x7FFFFFFF
        a ^= a >> 11
        b = (b * 1103515245 + 12345) & 0x7FFFFFFF
        b ^= b >> 11
        c = (c * 1103515245 + 12345) & 0x7FFFFFFF
        c ^= c >> 11
        d = (d * 1103515245 + 12345) & 0x7FFFFFFF
        d ^= d >> 11
    return a ^ b ^ c ^ d
