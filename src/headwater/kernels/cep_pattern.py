"""Patterns of several records: partial matches found by the value that their next record must have.

A partial match waits for its next stage. Where that stage compares for equality, it hangs in a chain of a hash table, by stage,
key and value; where it compares for order, in a pairing heap of its stage and key; else in the chain of its stage and key.
All of them are also in one list by age, from which they expire and are evicted.
"""

# ruff: noqa: D103
from __future__ import annotations

import numpy as np

from headwater.kernels.hashing import mix
from headwater.kernels.jit import kernel

#: rows of the pool: one column per partial match
STATE, SLOT, FIRST, ENTRY, NEXT, PREV, CHILD, OLDER, YOUNGER, VALUE, BORN = range(11)
FIELDS = 11
#: entries of `meta`
FREE, OLDEST, YOUNGEST, LIVE, ENTRIES, EVICTED, LAST_WAITING, BIRTHS = range(8)
META = 8
#: comparisons of this record with an earlier one
EQ, NE, LT, LE, GT, GE = range(6)
#: how a stage finds its partial matches
ALL, HASH, LOW, HIGH = range(4)
NULL = -(2**63)  #: stands for a missing value, which compares with nothing
NO_LIMIT = -1

_ODD = np.uint64(0x9E3779B97F4A7C15)


@kernel
def holds(op, mine, other):  # type: ignore[no-untyped-def]
    """Compare two values; a missing one is neither equal nor unequal to anything."""
    if mine == NULL or other == NULL:
        return False
    if op == EQ:
        return mine == other
    if op == NE:
        return mine != other
    if op == LT:
        return mine < other
    if op == LE:
        return mine <= other
    if op == GT:
        return mine > other
    return mine >= other


@kernel
def all_hold(stage, row, at, rows, values, conditions, bounds, skip):  # type: ignore[no-untyped-def]
    """Say whether a record fulfils the conditions of a stage towards the records in `rows[at]`, but for one."""
    for c in range(bounds[stage], bounds[stage + 1]):
        if c != skip:
            earlier = rows[at, conditions[c, 2]]
            if not holds(conditions[c, 0], values[conditions[c, 1], row], values[conditions[c, 3], earlier]):
                return False
    return True


@kernel
def _bucket(stage, slot, value, buckets):  # type: ignore[no-untyped-def]
    h = mix(np.uint64(value) ^ (np.uint64(slot) * _ODD) ^ (np.uint64(stage) << np.uint64(56)))
    return np.int64(h & np.uint64(buckets - 1))


@kernel
def _hang(p, bucket, pool, heads, tails):  # type: ignore[no-untyped-def]
    pool[NEXT, p] = -1
    pool[PREV, p] = tails[bucket]
    if tails[bucket] >= 0:
        pool[NEXT, tails[bucket]] = p
    else:
        heads[bucket] = p
    tails[bucket] = p


@kernel
def _unhang(p, bucket, pool, heads, tails):  # type: ignore[no-untyped-def]
    before, after = pool[PREV, p], pool[NEXT, p]
    if before >= 0:
        pool[NEXT, before] = after
    else:
        heads[bucket] = after
    if after >= 0:
        pool[PREV, after] = before
    else:
        tails[bucket] = before


# -- a pairing heap inside the pool: CHILD is the first child, NEXT the right sibling, PREV the left one or the parent -----


@kernel
def _meld(a, b, pool):  # type: ignore[no-untyped-def]
    if a < 0:
        return b
    if b < 0:
        return a
    if pool[VALUE, b] < pool[VALUE, a]:
        a, b = b, a
    child = pool[CHILD, a]
    pool[NEXT, b] = child
    if child >= 0:
        pool[PREV, child] = b
    pool[PREV, b] = a
    pool[CHILD, a] = b
    return a


@kernel
def _meld_children(p, pool):  # type: ignore[no-untyped-def]
    """Make one heap of p's children: pairs from left to right, then all from right to left."""
    pairs = -1
    child = pool[CHILD, p]
    pool[CHILD, p] = -1
    while child >= 0:
        second = pool[NEXT, child]
        after = -1
        if second >= 0:
            after = pool[NEXT, second]
            pool[NEXT, second] = -1
            pool[PREV, second] = -1
        pool[NEXT, child] = -1
        pool[PREV, child] = -1
        pair = _meld(child, second, pool)
        pool[NEXT, pair] = pairs  # pairs are strung up by NEXT, the last one first
        pairs = pair
        child = after
    root = -1
    while pairs >= 0:
        before = pool[NEXT, pairs]
        pool[NEXT, pairs] = -1
        pool[PREV, pairs] = -1
        root = _meld(root, pairs, pool)
        pairs = before
    return root


@kernel
def _cut(p, root, pool):  # type: ignore[no-untyped-def]
    """Take p out of its heap and return the new root."""
    rest = _meld_children(p, pool)
    if p == root:
        return rest
    before, after = pool[PREV, p], pool[NEXT, p]
    if pool[CHILD, before] == p:
        pool[CHILD, before] = after
    else:
        pool[NEXT, before] = after
    if after >= 0:
        pool[PREV, after] = before
    pool[NEXT, p] = -1
    pool[PREV, p] = -1
    return _meld(root, rest, pool)


# -- where a partial match waits ------------------------------------------------------------------------------------------


@kernel
def _wait(p, stage, stages, rows, values, conditions, index, pool, heads, tails, roots, meta):  # type: ignore[no-untyped-def]
    """Let p wait for a stage."""
    pool[STATE, p] = stage
    pool[ENTRY, p] = meta[ENTRIES]
    meta[ENTRIES] += 1
    if stage == stages - 1:
        meta[LAST_WAITING] += 1
    kind, c = index[stage, 0], index[stage, 1]
    value = 0
    if kind != ALL:
        value = values[conditions[c, 3], rows[p, conditions[c, 2]]]
    if kind == HIGH and value != NULL:
        value = ~value  # reverses the order without overflow
    pool[VALUE, p] = value
    if kind == ALL or kind == HASH:
        _hang(p, _bucket(stage, pool[SLOT, p], value, len(heads)), pool, heads, tails)
    elif value != NULL:
        at = pool[SLOT, p] * stages + stage
        pool[CHILD, p] = -1
        pool[NEXT, p] = -1
        pool[PREV, p] = -1
        roots[at] = _meld(roots[at], p, pool)


@kernel
def _stop_waiting(p, stages, index, pool, heads, tails, roots, meta):  # type: ignore[no-untyped-def]
    stage = pool[STATE, p]
    if stage == stages - 1:
        meta[LAST_WAITING] -= 1
    kind = index[stage, 0]
    if kind == ALL or kind == HASH:
        _unhang(p, _bucket(stage, pool[SLOT, p], pool[VALUE, p], len(heads)), pool, heads, tails)
    elif pool[VALUE, p] != NULL:
        at = pool[SLOT, p] * stages + stage
        roots[at] = _cut(p, roots[at], pool)


@kernel
def _release(p, pool, meta):  # type: ignore[no-untyped-def]
    """Take p out of the list by age and give its place back."""
    older, younger = pool[OLDER, p], pool[YOUNGER, p]
    if older >= 0:
        pool[YOUNGER, older] = younger
    else:
        meta[OLDEST] = younger
    if younger >= 0:
        pool[OLDER, younger] = older
    else:
        meta[YOUNGEST] = older
    pool[STATE, p] = -1
    pool[NEXT, p] = meta[FREE]
    meta[FREE] = p
    meta[LIVE] -= 1


@kernel
def _new(slot, first, pool, meta):  # type: ignore[no-untyped-def]
    p = meta[FREE]
    meta[FREE] = pool[NEXT, p]
    pool[SLOT, p] = slot
    pool[FIRST, p] = first
    pool[BORN, p] = meta[BIRTHS]
    meta[BIRTHS] += 1
    pool[OLDER, p] = meta[YOUNGEST]
    pool[YOUNGER, p] = -1
    if meta[YOUNGEST] >= 0:
        pool[YOUNGER, meta[YOUNGEST]] = p
    else:
        meta[OLDEST] = p
    meta[YOUNGEST] = p
    meta[LIVE] += 1
    return p


@kernel
def _give_up(p, every, armed, stages, index, pool, heads, tails, roots, meta):  # type: ignore[no-untyped-def]
    _stop_waiting(p, stages, index, pool, heads, tails, roots, meta)
    if not every:
        armed[pool[SLOT, p]] = 0  # a pattern that was never matched starts anew
    _release(p, pool, meta)


@kernel
def expire(clock, within, every, armed, stages, index, pool, heads, tails, roots, meta):  # type: ignore[no-untyped-def]
    """Give up what began more than `within` ago."""
    if within < 0:
        return
    while meta[OLDEST] >= 0 and pool[FIRST, meta[OLDEST]] < clock - within:
        _give_up(meta[OLDEST], every, armed, stages, index, pool, heads, tails, roots, meta)


@kernel
def _candidates(stage, row, slot, stages, values, conditions, index, pool, heads, roots, found):  # type: ignore[no-untyped-def]
    """Write the partial matches that wait for this record's value, in the order they came to the stage."""
    kind, c = index[stage, 0], index[stage, 1]
    n = 0
    value = 0 if kind == ALL else values[conditions[c, 1], row]
    if kind == ALL or kind == HASH:
        p = heads[_bucket(stage, slot, value, len(heads))]
        while p >= 0:
            if pool[STATE, p] == stage and pool[SLOT, p] == slot and pool[VALUE, p] == value:
                found[n] = p
                n += 1
            p = pool[NEXT, p]
        return n
    if value == NULL:
        return 0
    if kind == HIGH:
        value = ~value
    strictly = conditions[c, 0] == GT or conditions[c, 0] == LT
    at = slot * stages + stage
    while roots[at] >= 0:
        p = roots[at]
        if pool[VALUE, p] > value or (strictly and pool[VALUE, p] == value):
            break
        roots[at] = _cut(p, p, pool)
        found[n] = p
        n += 1
    if n > 1:
        by_entry = np.argsort(pool[ENTRY][found[:n]])
        found[:n] = found[:n][by_entry]
    # they stay in the heap until they move on
    for i in range(n):
        p = found[i]
        pool[CHILD, p] = -1
        pool[NEXT, p] = -1
        pool[PREV, p] = -1
        roots[at] = _meld(roots[at], p, pool)
    return n


@kernel
def _take(stage, row, slot, stages, rows, values, conditions, bounds, index, armed, every, pool, heads, tails, roots, meta, found, out, m):  # type: ignore[no-untyped-def]
    """Show a record to the partial matches that wait for a stage; return how many matches there are now."""
    n = _candidates(stage, row, slot, stages, values, conditions, index, pool, heads, roots, found)
    skip = index[stage, 1] if index[stage, 0] != ALL else -1
    for i in range(n):
        p = found[i]
        if not all_hold(stage, row, p, rows, values, conditions, bounds, skip):
            continue
        if index[stage, 0] == HASH and pool[VALUE, p] == NULL:
            continue
        _stop_waiting(p, stages, index, pool, heads, tails, roots, meta)
        rows[p, stage] = row
        if stage == stages - 1:
            out[m] = rows[p]
            m += 1
            if not every:
                armed[slot] = 2
            _release(p, pool, meta)
        else:
            _wait(p, stage + 1, stages, rows, values, conditions, index, pool, heads, tails, roots, meta)
    return m


@kernel
def match(start, stop, base, values, times, slots, passes, conditions, bounds, index, every, within, cap, pool, rows, heads, tails, roots, armed, meta, found, out):  # type: ignore[no-untyped-def]
    """Show records start … stop - 1 (rows base + i of `values`) to all partial matches.

    Returns the record before which it stopped, for want of room, and the number of matches written to `out`.
    """
    stages = len(bounds) - 1
    m = 0
    for i in range(start, stop):
        if meta[LIVE] >= pool.shape[1] and meta[LIVE] < cap:
            return i, m
        if m + meta[LAST_WAITING] + 1 > len(out) or meta[LIVE] > len(found):
            return i, m
        row, slot = base + i, slots[i]
        expire(times[i], within, every, armed, stages, index, pool, heads, tails, roots, meta)
        if meta[LIVE] > 0:
            # from the last stage to the first, so that no partial match takes one record twice
            for stage in range(stages - 1, 0, -1):
                if passes[stage, i]:
                    m = _take(stage, row, slot, stages, rows, values, conditions, bounds, index, armed, every, pool, heads, tails, roots, meta, found, out, m)
        if passes[0, i] and (every or armed[slot] == 0):
            if stages == 1:
                out[m, 0] = row
                m += 1
                armed[slot] = 2
                continue
            armed[slot] = 1
            if meta[LIVE] >= cap:
                meta[EVICTED] += 1
                _give_up(meta[OLDEST], every, armed, stages, index, pool, heads, tails, roots, meta)
                armed[slot] = 1
            p = _new(slot, times[i], pool, meta)
            rows[p, 0] = row
            _wait(p, 1, stages, rows, values, conditions, index, pool, heads, tails, roots, meta)
    return stop, m


@kernel
def rehang(order, index, pool, heads, tails):  # type: ignore[no-untyped-def]
    """Hang partial matches, in the order given, into new and empty chains."""
    for i in range(len(order)):
        p = order[i]
        kind = index[pool[STATE, p], 0]
        if kind == ALL or kind == HASH:
            _hang(p, _bucket(pool[STATE, p], pool[SLOT, p], pool[VALUE, p], len(heads)), pool, heads, tails)


@kernel
def replant(slots, firsts, waits_for, by_entry, taken, stages, values, conditions, index, pool, rows, heads, tails, roots, meta):  # type: ignore[no-untyped-def]
    """Add saved partial matches to an empty pool: born in the order given, waiting in the order of `by_entry`."""
    for i in range(len(slots)):
        p = _new(slots[i], firsts[i], pool, meta)
        rows[p] = taken[i]
        pool[STATE, p] = waits_for[i]
        pool[VALUE, p] = i  # for the moment: which one went here
    where = np.empty(len(slots), np.int64)
    for p in range(pool.shape[1]):
        if pool[STATE, p] >= 0:
            where[pool[VALUE, p]] = p
    for i in by_entry:
        p = where[i]
        _wait(p, pool[STATE, p], stages, rows, values, conditions, index, pool, heads, tails, roots, meta)
