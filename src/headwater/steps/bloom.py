"""A Bloom filter over texts: says "perhaps" or "certainly not"."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import TextColumn, hash_bytes, mix, place_of
from headwater.data.jit import kernel
from headwater.errors import FlowError

_SEED = np.uint64(0)


class BloomFilter:
    """Remembers up to `capacity` texts, wrongly knowing others with probability `false_positives`.

    >>> from headwater.data.column import Text
    >>> known = BloomFilter(capacity=1000, false_positives=0.01)
    >>> known.add(Text.of(["pump-1", "pump-2"]))
    >>> known.contains(Text.of(["pump-2", "pump-3"]))
    array([ True, False])
    """

    def __init__(self, capacity: int, false_positives: float) -> None:
        if capacity < 1 or not 0 < false_positives < 1:
            raise FlowError(
                "a Bloom filter needs a capacity of 1 or more and a share of false positives within 0 and 1; "
                f"got {capacity} and {false_positives}"
            )
        self.bit_count = math.ceil(-capacity * math.log(false_positives) / math.log(2) ** 2)
        self.hash_count = max(1, round(self.bit_count / capacity * math.log(2)))
        self.words = np.zeros((self.bit_count + 63) // 64, np.uint64)

    def add(self, texts: TextColumn) -> None:
        """Remember texts."""
        _add(texts.data, texts.offsets, self.words, self.bit_count, self.hash_count)

    def contains(self, texts: TextColumn) -> NDArray[np.bool_]:
        """Tell for each text whether it may have been added; False is certain."""
        out = np.empty(len(texts.offsets) - 1, np.bool_)
        _contains(texts.data, texts.offsets, self.words, self.bit_count, self.hash_count, out)
        return out


@kernel
def _place(data: NDArray[np.uint8], start: int, stop: int, bits: int) -> tuple[int, int]:
    # The first bit of a text, and the stride from each of its bits to the next.
    h = hash_bytes(data, start, stop, _SEED)
    return place_of(h, bits), place_of(mix(h), bits)


@kernel
def _add(
    data: NDArray[np.uint8], offsets: NDArray[np.int32], words: NDArray[np.uint64], bits: int, hashes: int
) -> None:
    for i in range(len(offsets) - 1):
        bit, stride = _place(data, offsets[i], offsets[i + 1], bits)
        for _ in range(hashes):
            words[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
            bit = bit + stride if bit + stride < bits else bit + stride - bits


@kernel
def _contains(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    words: NDArray[np.uint64],
    bits: int,
    hashes: int,
    out: NDArray[np.bool_],
) -> None:
    for i in range(len(out)):
        bit, stride = _place(data, offsets[i], offsets[i + 1], bits)
        out[i] = True
        for _ in range(hashes):
            if not words[bit >> 6] & (np.uint64(1) << np.uint64(bit & 63)):
                out[i] = False
                break
            bit = bit + stride if bit + stride < bits else bit + stride - bits
