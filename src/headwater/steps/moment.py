"""The second-order moment of each key's values, estimated from a few of them (Alon, Matias and Szegedy)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.data.hashing import hash_int, place_of
from headwater.data.jit import kernel
from headwater.flow.state import Cell, Rows


class SecondMoment:
    """Estimates the second-order moment of a column of each key from `places` of its values: column `moment`.

    The moment tells whether few values make up most of a stream (it is large) or many do (it is small).
    """

    def __init__(self, column: str = "value", *, places: int = 10, seed: int = 1) -> None:
        self.column, self.seed = column, seed
        self.makes: tuple[str, ...] = ("moment",)
        self.reads: tuple[str, ...] = (self.column,)
        self.state: Mapping[str, Cell] = {
            "items": Cell("float32", shape=(places,)),
            "counts": Cell("int64", shape=(places,)),
            "seen": Cell("int64"),
            "used": Cell("int64"),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimate after each record."""
        return {"moment": self.moments(batch, slots, state)}

    def moments(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Array:
        """Return the estimate after each record, as an array."""
        out = np.empty(batch.length, np.float32)
        cells = state["items"], state["counts"], state["seen"], state["used"]
        second_moment(slots, batch[self.column].astype(np.float32, copy=False), *cells, self.seed, out)
        return out


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
