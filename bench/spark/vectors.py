"""What the flows remember of each sensor, for all sensors of a bucket at once: numpy on whole columns.

Rows come in the order of their messages. What is kept is arrays with a row for each sensor, which has a number, its
slot. There is no loop over rows: over the positions of a sensor's rows at most, where each value depends on the one before.
"""

from __future__ import annotations

from hashlib import sha1

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from keyed import GAP, HORIZON, WINDOW
from numpy.lib.stride_tricks import sliding_window_view

PLACES, BITS, BLOCK = 10, 5, 5
_middle = (WINDOW - 1) / 2
_positions = np.arange(WINDOW) - _middle
_spread = WINDOW * (WINDOW * WINDOW - 1) / 12
_ahead = WINDOW + np.arange(HORIZON) - _middle


class Grouped:
    """Rows by slot, in order; `kept` numbers of each slot stand before its rows in what `behind` returns."""

    def __init__(self, slots: np.ndarray, many: int) -> None:
        self.order = np.argsort(slots, kind="stable")
        self.slots = slots[self.order]
        self.counts = np.bincount(slots, minlength=many)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])
        self.rank = np.arange(len(slots)) - self.starts[self.slots]

    def behind(self, state: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all numbers by slot, where each slot's begin and, behind the last, end, and where those of rows are."""
        many, size = state.shape[:2]
        edges = self.starts + size * np.arange(many + 1)
        at = np.arange(len(values)) + size * (self.slots + 1)
        every = np.empty((len(values) + many * size, *values.shape[1:]), values.dtype)
        every[at] = values
        every[(edges[:-1, None] + np.arange(size)).ravel()] = state.reshape(-1, *values.shape[1:])
        return every, edges, at

    def rounds(self) -> list[np.ndarray]:
        """Return the first row of every slot, then the second ones, and so on."""
        by_rank = np.argsort(self.rank, kind="stable")
        return np.split(by_rank, np.cumsum(np.bincount(self.rank))[:-1]) if len(by_rank) else []

    def in_order(self, values: np.ndarray) -> np.ndarray:
        """Return what was computed of sorted rows in the order in which rows came."""
        out = np.empty_like(values)
        out[self.order] = values
        return out


def slots_of(sources_before: list[str], sources: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return the slot of each row, and the names of all slots: those that are known, then new ones."""
    coded = sources.dictionary_encode() if not isinstance(sources, pa.DictionaryArray) else sources
    names = coded.dictionary.to_pylist()
    at = pd.Index(sources_before, dtype=object).get_indexer(names)
    new = np.flatnonzero(at < 0)
    at[new] = len(sources_before) + np.arange(len(new))
    return at[coded.indices.to_numpy()], sources_before + [names[i] for i in new]


def grown(values: np.ndarray, many: int, fill: float = 0) -> np.ndarray:
    """Return what is kept, with rows for new slots."""
    more = np.full((many - len(values), *values.shape[1:]), fill, values.dtype)
    return np.concatenate([values, more])


def filled(grouped: Grouped, values: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace gaps by the mean of the last valid values of a slot, of which `last` keeps some, NaN where there are fewer."""
    every, edges, at = grouped.behind(last, values[grouped.order])
    valid = ~np.isnan(every)
    seen = np.concatenate([[0], np.cumsum(valid)])
    whole = every[valid]

    def before(place: np.ndarray, slots: np.ndarray) -> np.ndarray:
        which = seen[place][:, None] - GAP + np.arange(GAP)
        inside = which >= seen[edges[slots]][:, None]
        return np.where(inside, whole[np.where(inside, which, 0)] if len(whole) else np.float32(0), np.float32(np.nan))

    gaps = np.flatnonzero(~valid[at])
    window = before(at[gaps], grouped.slots[gaps])
    there = ~np.isnan(window)
    total = np.where(there, window, np.float32(0)).sum(axis=1, dtype=np.float32)
    every[at[gaps]] = total / np.maximum(there.sum(axis=1), 1).astype(np.float32)
    ends = before(edges[1:], np.arange(len(last)))
    return grouped.in_order(every[at]), ends


def kalman(grouped: Grouped, values: np.ndarray, estimate: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Smooth sorted rows, a column for each observation; what is kept changes in place."""
    out = np.empty_like(values)
    for rows in grouped.rounds():
        slots = grouped.slots[rows]
        before = variance[slots] + 0.125
        gain = before / (before + 0.32)
        now = estimate[slots] + gain * (values[rows] - estimate[slots])
        estimate[slots], variance[slots] = now, (1 - gain) * before
        out[rows] = now
    return out


def regression(grouped: Grouped, values: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which sorted rows had a full window before them, what lines up to them say, and what to keep."""
    every, edges, at = grouped.behind(last, values)
    which = np.flatnonzero(~np.isnan(every[at - WINDOW, 0]))
    windows = sliding_window_view(every, WINDOW, axis=0)[at[which] - WINDOW + 1]
    slopes = windows @ _positions / _spread
    lines = windows.mean(axis=2)[..., None] + slopes[..., None] * _ahead
    return which, lines.astype(np.float32), every[edges[1:, None] - WINDOW + np.arange(WINDOW)]


def moments(
    grouped: Grouped, values: np.ndarray, items: np.ndarray, counts: np.ndarray, seen: np.ndarray, used: np.ndarray
) -> np.ndarray:
    """Return the second-order moment after each sorted row; what is kept changes in place."""
    out = np.empty(values.shape)
    seeds = _hashed(values.view(np.int32).astype(np.int64).astype(np.uint64), np.uint64(1))
    for rows in grouped.rounds():
        slots, value = grouped.slots[rows], values[rows]
        seen[slots] += 1
        now = seen[slots]
        mine, many, have = items[slots], counts[slots], used[slots]
        same = (mine == value[..., None]) & (np.arange(PLACES) < have[..., None])
        hit = same.any(axis=2)
        drawn = _hashed(now.astype(np.uint64)[:, None], seeds[rows]) % np.uint64(PLACES)
        place = np.where(hit, same.argmax(axis=2), np.where(have < PLACES, have, drawn.astype(np.int64)))
        have = have + (~hit & (have < PLACES))
        counters = np.take_along_axis(many, place[..., None], 2)[..., 0]
        np.put_along_axis(mine, place[..., None], value[..., None], 2)
        np.put_along_axis(many, place[..., None], np.where(hit, counters + 1, 1)[..., None], 2)
        items[slots], counts[slots], used[slots] = mine, many, have
        out[rows] = now[:, None] * ((2 * many.sum(axis=2) - PLACES) / have)
    return out


def distinct(sources: pa.Array, ranks: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Return after each row how many distinct sources there may have been, as text, and what to keep."""
    coded = sources.dictionary_encode() if not isinstance(sources, pa.DictionaryArray) else sources
    places = np.array([_place(name) for name in coded.dictionary.to_pylist()], np.int64).reshape(-1, 2)
    bucket, rank = places[coded.indices.to_numpy()].T
    more = np.zeros(len(bucket), np.int64)
    ranks = ranks.copy()
    for one in range(2**BITS):
        rows = np.flatnonzero(bucket == one)
        highest = np.maximum.accumulate(np.concatenate([[ranks[one]], rank[rows]]))
        more[rows] = np.diff(highest)
        ranks[one] = highest[-1]
    totals, which = np.unique(ranks.sum() - more.sum() + np.cumsum(more), return_inverse=True)
    texts = [str(int(0.79402 * 2**BITS * 2 ** (total / 2**BITS))) for total in totals.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(which)), ranks


def latest(grouped: Grouped, values: np.ndarray, total: np.ndarray, count: np.ndarray, last: float) -> np.ndarray:
    """Return for each row the latest average of any sensor before it, in the rows' order; what is kept changes in place."""
    sums, place = values[grouped.order].astype(np.float64), count[grouped.slots] + grouped.rank
    blocks = place // BLOCK
    first = np.concatenate([[0], np.cumsum((count + grouped.counts) // BLOCK + 1)])
    whole = np.bincount(first[grouped.slots] + blocks, sums, minlength=first[-1])
    whole[first[:-1]] += total
    ends = place % BLOCK == BLOCK - 1
    averages = np.full(len(values), np.nan, np.float32)
    averages[ends] = whole[(first[grouped.slots] + blocks)[ends]] / BLOCK
    open_ = count + grouped.counts
    total[:], count[:] = whole[first[:-1] + open_ // BLOCK], open_ % BLOCK
    shifted = np.concatenate([[np.float32(last)], grouped.in_order(averages)])
    where = np.maximum.accumulate(np.where(np.isnan(shifted), 0, np.arange(len(shifted))))
    return shifted[where]


def joined(numbers: np.ndarray) -> pa.Array:
    """Return the numbers of each row as text, each followed by #."""
    texts = pc.cast(pa.array(np.ascontiguousarray(numbers).ravel()), pa.string())
    parts = pa.ListArray.from_arrays(pa.array(np.arange(len(numbers) + 1, dtype=np.int32) * numbers.shape[1]), texts)
    return pc.binary_join_element_wise(pc.binary_join(parts, "#"), "", "#")


def _place(source: str) -> tuple[int, int]:
    head = int.from_bytes(sha1(source.encode()).digest()[:4], "little", signed=True)
    bucket, rest = head & (2**BITS - 1), head >> BITS
    return bucket, 31 if rest == 0 else (rest & -rest).bit_length() - 1


def _hashed(value: np.ndarray, seed: np.ndarray) -> np.ndarray:
    h = (value ^ seed) + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))
