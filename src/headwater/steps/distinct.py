"""How many distinct texts went by: the estimate of Durand and Flajolet, in memory of a fixed size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import Batch
from headwater.data.column import Array, Text
from headwater.data.jit import kernel
from headwater.flow.state import Cell, Rows
from headwater.steps.sha1 import sha1_head

_ALPHA = 0.79402  # Durand and Flajolet's correction for the bias of 2^mean


class DistinctCount:
    """Estimates how many distinct texts of a column each key has seen: column `distinct`.

    It keeps 2^`bits` small numbers for each key, however many texts there are; 5 bits are off by some 20 %, each two more
    halve that. Few texts are overestimated: count on it from some ten times 2^`bits` of them.
    """

    def __init__(self, column: str, *, bits: int = 5) -> None:
        self.column = column
        self.makes: tuple[str, ...] = ("distinct",)
        self.reads: tuple[str, ...] = (self.column,)
        self.state: Mapping[str, Cell] = {"ranks": Cell("int64", shape=(2**bits + 1,))}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimate after each record."""
        return {"distinct": self.counts(batch, slots, state)}

    def counts(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Array:
        """Return the estimate after each record, as an array."""
        out = np.empty(batch.length, np.int64)
        items: Text = batch[self.column]
        distinct_count(slots, items.data, items.offsets, state["ranks"], out)
        return out


@kernel
def _same(data: NDArray[np.uint8], offsets: NDArray[np.int32], one: int, other: int) -> bool:
    length = offsets[one + 1] - offsets[one]
    same = 0 if offsets[other + 1] - offsets[other] == length else length + 1
    while same < length and data[offsets[one] + same] == data[offsets[other] + same]:
        same += 1
    return bool(same == length)


@kernel
def distinct_count(
    sketches: NDArray[np.int64],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    ranks: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Enter each text into its sketch `ranks[sketch]`; put out the sketch's estimate after it.

    A sketch has 2^k buckets; each keeps the longest run of zero bits among the hashes that fell into it. The
    sketch's last entry, one past the buckets, is their sum.
    """
    buckets = ranks.shape[1] - 1
    bits = 0
    while 1 << bits < buckets:
        bits += 1
    head = 0
    for i in range(len(sketches)):
        sketch = sketches[i]
        if i == 0 or not _same(data, offsets, i - 1, i):  # the observations of a message follow each other
            head = sha1_head(data, offsets[i], offsets[i + 1])
        bucket, rest = head & (buckets - 1), head >> bits
        rank = 0
        if rest == 0:
            rank = 31
        else:
            while rest & 1 == 0:
                rest >>= 1
                rank += 1
        if rank > ranks[sketch, bucket]:
            ranks[sketch, buckets] += rank - ranks[sketch, bucket]
            ranks[sketch, bucket] = rank
        out[i] = int(_ALPHA * buckets * 2.0 ** (ranks[sketch, buckets] / buckets))
