"""The keyed statistics on whole rows: `values[k, i]` is kind k of record i, and a key's state holds all kinds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import hash_int, place_of
from headwater.data.jit import kernel


@kernel
def kalman_rows(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    estimate: NDArray[np.float32],
    variance: NDArray[np.float32],
    process_noise: float,
    sensor_noise: float,
) -> None:
    """Put each slot's corrected estimates in the place of the values.

    The variance depends on the number of values alone, so that all kinds of a slot share it.
    """
    q, r = np.float32(process_noise), np.float32(sensor_noise)
    one = np.float32(1)
    for i in range(len(slots)):
        slot = slots[i]
        before = variance[slot] + q
        gain = before / (before + r)
        variance[slot] = (one - gain) * before
        for k in range(len(values)):
            estimate[slot, k] += gain * (values[k, i] - estimate[slot, k])
            values[k, i] = estimate[slot, k]


@kernel
def regression_rows(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    history: NDArray[np.float32],
    counts: NDArray[np.int64],
    rows: NDArray[np.int64],
    out: NDArray[np.float32],
) -> int:
    """Predict as `sliding_regression` does: `out[k, i]` are predictions of kind k for record `rows[i]`."""
    window = history.shape[2]
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        place = counts[slot] % window
        counts[slot] += 1
        ready = counts[slot] > window
        for k in range(len(values)):
            ring = history[slot, k]
            ring[place] = values[k, i]
            if ready:
                _prolong(ring, counts[slot] % window, out[k, count])
        if ready:
            rows[count] = i
            count += 1
    return count


@kernel
def _prolong(ring: NDArray[np.float32], first: int, out: NDArray[np.float32]) -> None:
    # A line through the values of a ring, of which the one at `first` is the oldest, and what it says of the next ones.
    window = len(ring)
    middle = (window - 1) / 2
    total, slope = 0.0, 0.0
    for position in range(window):
        at = first + position if first + position < window else first + position - window
        y = float(ring[at])  # uncompiled, a sum with a 32-bit number would be one of 32 bits
        total += y
        slope += (position - middle) * y
    mean, slope = total / window, slope / (window * (window * window - 1) / 12)
    for ahead in range(len(out)):
        out[ahead] = mean + slope * (window + ahead - middle)


@kernel
def moment_rows(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    items: NDArray[np.float32],
    counts: NDArray[np.int64],
    seen: NDArray[np.int64],
    used: NDArray[np.int64],
    seed: int,
    out: NDArray[np.float32],
) -> None:
    """Estimate as `second_moment` does: `out[k, i]` is that of kind k after record i."""
    places = items.shape[2]
    bits = values.view(np.int32)
    for i in range(len(slots)):
        slot = slots[i]
        seen[slot] += 1
        for k in range(len(values)):
            value, place = values[k, i], 0
            while place < used[slot, k] and items[slot, k, place] != value:
                place += 1
            if place < used[slot, k]:
                counts[slot, k, place] += 1
            else:
                if place < places:
                    used[slot, k] += 1
                else:
                    place = place_of(hash_int(seen[slot], hash_int(bits[k, i], np.uint64(seed))), places)
                items[slot, k, place] = value
                counts[slot, k, place] = 1
            total = 0
            for other in range(places):
                total += 2 * counts[slot, k, other] - 1
            out[k, i] = seen[slot] * (total / used[slot, k])
