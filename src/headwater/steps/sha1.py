"""SHA-1 of short texts, compiled: what the benchmark's distinct count is defined by. Not for security."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel

_WORD = 0xFFFFFFFF


@kernel
def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (32 - by)) & _WORD


@kernel
def _byte(data: NDArray[np.uint8], start: int, length: int, at: int, padded: int) -> int:
    # The padded message: the text, one bit, zeros, and the length in bits as the last eight bytes.
    if at < length:
        return int(data[start + at])
    if at == length:
        return 0x80
    if at >= padded - 8:
        return (length * 8) >> (8 * (padded - 1 - at)) & 0xFF
    return 0


@kernel
def sha1_head(data: NDArray[np.uint8], start: int, stop: int) -> int:
    """Return the first four bytes of the SHA-1 of `data[start:stop]`, as a signed little-endian number."""
    length = stop - start
    padded = (length + 9 + 63) // 64 * 64
    h0, h1, h2, h3, h4 = 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0
    w = np.empty(80, np.int64)
    for block in range(0, padded, 64):
        for t in range(16):
            word = 0
            for j in range(4):
                word = word << 8 | _byte(data, start, length, block + 4 * t + j, padded)
            w[t] = word
        for t in range(16, 80):
            w[t] = _rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1)
        a, b, c, d, e = h0, h1, h2, h3, h4
        for t in range(80):
            if t < 20:
                f, k = b & c | (b ^ _WORD) & d, 0x5A827999
            elif t < 40:
                f, k = b ^ c ^ d, 0x6ED9EBA1
            elif t < 60:
                f, k = b & c | b & d | c & d, 0x8F1BBCDC
            else:
                f, k = b ^ c ^ d, 0xCA62C1D6
            a, b, c, d, e = (_rotate(a, 5) + f + e + k + w[t]) & _WORD, a, _rotate(b, 30), c, d
        h0, h1, h2 = (h0 + a) & _WORD, (h1 + b) & _WORD, (h2 + c) & _WORD
        h3, h4 = (h3 + d) & _WORD, (h4 + e) & _WORD
    head = (h0 & 0xFF) << 24 | (h0 >> 8 & 0xFF) << 16 | (h0 >> 16 & 0xFF) << 8 | h0 >> 24
    return head - (1 << 32) if head >> 31 else head
