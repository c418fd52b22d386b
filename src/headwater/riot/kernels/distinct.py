"""How many distinct texts went by: the estimate of Durand and Flajolet, in memory of a fixed size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel
from headwater.riot.kernels.sha1 import sha1_head

_ALPHA = 0.79402  # Durand and Flajolet's correction for the bias of 2^mean


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
