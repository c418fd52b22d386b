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

_RECENT = 2**14  #: texts at most whose hash is remembered within a batch: SHA-1 takes as long as all else for several
_TOTALS = 2**6 - 1  #: less one: sums whose estimates are remembered likewise
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
def _place(data: NDArray[np.uint8], start: int, stop: int, room: int) -> int:
    place = 0
    for at in range(start, stop):
        place = (31 * place + int(data[at])) & (room - 1)
    return place


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
    room = 1
    while room < min(len(sketches), _RECENT):
        room *= 2
    recent, heads = np.full(room, -1, np.int64), np.zeros(room, np.int64)
    totals, estimates = np.full(_TOTALS + 1, -1, np.int64), np.zeros(_TOTALS + 1, np.int64)
    head = 0
    for i in range(len(sketches)):
        sketch = sketches[i]
        if i == 0 or not _same(data, offsets, i - 1, i):  # the observations of a message follow each other
            place = _place(data, offsets[i], offsets[i + 1], room)
            if recent[place] < 0 or not _same(data, offsets, recent[place], i):
                recent[place], heads[place] = i, sha1_head(data, offsets[i], offsets[i + 1])
            head = heads[place]
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
        total = ranks[sketch, buckets]
        if totals[total & _TOTALS] != total:  # a power takes as long as all else, and sums are often the same
            totals[total & _TOTALS] = total
            estimates[total & _TOTALS] = int(_ALPHA * buckets * 2.0 ** (total / buckets))
        out[i] = estimates[total & _TOTALS]
