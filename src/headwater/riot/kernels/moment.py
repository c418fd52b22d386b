"""The second-order moment of each key's values, estimated from a few of them (Alon, Matias and Szegedy)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import hash_int, place_of
from headwater.data.jit import kernel


@kernel
def second_moment(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    items: NDArray[np.float32],
    counts: NDArray[np.int64],
    seen: NDArray[np.int64],
    used: NDArray[np.int64],
    seed: int,
    out: NDArray[np.float32],
) -> None:
    """Count each value among the slot's few `items`; put out the estimate after it.

    A value that is not among them takes a free place or, when there is none, a random one: the choice follows
    from `seed`, the value and how many its key has `seen`, so a run can be repeated, and every runner makes the
    same choice wherever the key's slot lies. The estimate sums over all places, free ones too, as the benchmark
    does; so the first one is 2 - places.
    """
    places = items.shape[1]
    bits = values.view(np.int32)
    for i in range(len(slots)):
        slot = slots[i]
        seen[slot] += 1
        place = 0
        while place < used[slot] and items[slot, place] != values[i]:
            place += 1
        if place < used[slot]:
            counts[slot, place] += 1
        else:
            if place < places:
                used[slot] += 1
            else:
                place = place_of(hash_int(seen[slot], hash_int(bits[i], np.uint64(seed))), places)
            items[slot, place] = values[i]
            counts[slot, place] = 1
        total = 0
        for k in range(places):
            total += 2 * counts[slot, k] - 1
        out[i] = seen[slot] * (total / used[slot])
