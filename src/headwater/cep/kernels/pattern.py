"""Patterns of several records: partial matches found by the value that their next record must have.

A partial match waits for its next stage. Where that stage compares for equality, it hangs in a chain of a hash table, by
stage, key and value; where it compares for order, in a pairing heap of its stage and key; else in the chain of its stage
and key. All of them are also in one list by age, from which they expire and are evicted.
"""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headwater.cep.kernels import waiting as w
from headwater.data.jit import kernel

#: columns of the pool, after those of every node; one row per partial match
FIRST, OLDER, YOUNGER, BORN = range(w.FIELDS, w.FIELDS + 4)
FIELDS = w.FIELDS + 4
#: entries of `meta`
FREE, OLDEST, YOUNGEST, LIVE, ARRIVALS, EVICTED, LAST_WAITING, BIRTHS = range(8)
META = 8


# -- matching -----------------------------------------------------------------------------------------------------------
#
# The loop below is one function on purpose: a compiled call counts references of each array it is given, which for a dozen
# arrays costs more than moving a partial match from one chain to another.


@kernel
def match(
    start,
    stop,
    base,
    values,
    times,
    slots,
    passes,
    conditions,
    bounds,
    index,
    every,
    within,
    for_all,
    cap,
    pool,
    rows,
    heads,
    tails,
    roots,
    armed,
    begun,
    meta,
    marks,
    candidates,
    out,
):
    """Show records start … stop - 1 (rows base + i of `values`) to all partial matches.

    The time of a record says `for_all` keys what is too old, or for its own alone: what is too old then takes no record, and
    waits until somebody says so for all. Returns the record before which it stopped, for want of room, and the number of
    matches written to `out`.
    """
    stages = len(bounds) - 1
    buckets = len(heads)
    m = 0
    for i in range(start, stop):
        if m + meta[LAST_WAITING] + 1 > len(out) or (meta[LIVE] >= len(pool) and meta[LIVE] < cap):
            return i, m
        row, slot, now = base + i, slots[i], times[i]
        # What is too old goes first. Then the record is shown to the stages from the last to the first, so that no partial
        # match takes it twice; at stage 0 a new one begins.
        for stage in range(stages, -1, -1):
            if stage == stages:
                if within >= 0 and not every and armed[slot] == 1 and begun[slot] < now - within:
                    armed[slot] = 0  # a pattern that was never matched starts anew
                if within < 0 or not for_all:
                    continue
            elif not passes[stage, i]:
                continue
            begins = stage == 0 and (every or armed[slot] == 0)
            # -- give up what is too old, and what the cap leaves no room for
            while meta[OLDEST] >= 0:
                p = meta[OLDEST]
                if stage == stages:
                    if pool[p, FIRST] >= now - within:
                        break
                elif begins and meta[LIVE] >= cap:
                    meta[EVICTED] += 1
                else:
                    break
                waits_for = pool[p, w.STATE]
                if waits_for == stages - 1:
                    meta[LAST_WAITING] -= 1
                if index[waits_for, 0] <= w.HASH:
                    w.leave_chain(p, pool, heads, tails)
                else:
                    w.leave_heap(p, pool[p, w.SLOT] * stages + waits_for, pool, roots)
                if not every and armed[pool[p, w.SLOT]] == 1 and begun[pool[p, w.SLOT]] == pool[p, FIRST]:
                    armed[pool[p, w.SLOT]] = 0
                meta[OLDEST] = pool[p, YOUNGER]
                if meta[OLDEST] >= 0:
                    pool[meta[OLDEST], OLDER] = -1
                else:
                    meta[YOUNGEST] = -1
                pool[p, w.STATE] = -1
                pool[p, w.NEXT] = meta[FREE]
                meta[FREE] = p
                meta[LIVE] -= 1
            if stage == stages:
                continue
            # -- find the partial matches that wait for this record here
            n = 0
            skip = -1
            if stage == 0:
                if not begins:
                    continue
                armed[slot], begun[slot] = 1, now
                if stages > 1:
                    p = meta[FREE]
                    meta[FREE] = pool[p, w.NEXT]
                    pool[p, w.SLOT], pool[p, FIRST], pool[p, BORN] = slot, now, meta[BIRTHS]
                    meta[BIRTHS] += 1
                    pool[p, OLDER], pool[p, YOUNGER] = meta[YOUNGEST], -1
                    if meta[YOUNGEST] >= 0:
                        pool[meta[YOUNGEST], YOUNGER] = p
                    else:
                        meta[OLDEST] = p
                    meta[YOUNGEST] = p
                    meta[LIVE] += 1
                    candidates[0] = p
                    n = 1
                else:
                    out[m, 0] = row
                    m += 1
                    armed[slot] = 2
            elif meta[LIVE] > 0:
                kind, skip = index[stage, 0], index[stage, 1]
                if kind == w.UNLIKE:
                    # Those that an equal record has passed by are equal to it: only what came since can be unlike.
                    value = values[conditions[skip, 1], row]
                    at = slot * stages + stage
                    since = marks[at, 1] if marks[at, 0] == value else -1
                    p = tails[w.bucket_of(stage, slot, 0, buckets)] if value != w.NULL else -1
                    while p >= 0:
                        if pool[p, w.STATE] == stage and pool[p, w.SLOT] == slot:
                            if pool[p, w.CAME] < since:
                                break
                            candidates[n] = p
                            n += 1
                        p = pool[p, w.PREV]
                    for j in range(n // 2):
                        candidates[j], candidates[n - 1 - j] = candidates[n - 1 - j], candidates[j]
                    if value != w.NULL:
                        marks[at, 0], marks[at, 1] = value, meta[ARRIVALS]
                    skip = -1
                elif kind <= w.HASH:
                    value = values[conditions[skip, 1], row] if kind == w.HASH else 0
                    if kind == w.ALL or value > w.NAN:
                        p = heads[w.bucket_of(stage, slot, value, buckets)]
                        while p >= 0:
                            if pool[p, w.STATE] == stage and pool[p, w.SLOT] == slot and pool[p, w.VALUE] == value:
                                candidates[n] = p
                                n += 1
                            p = pool[p, w.NEXT]
                else:
                    strictly = conditions[skip, 0] == w.GT or conditions[skip, 0] == w.LT
                    value = values[conditions[skip, 1], row]
                    n = w.in_reach(slot * stages + stage, value, kind, strictly, pool, roots, candidates, 0)
                    w.sort(candidates, n, pool, w.CAME)
            # -- move them on
            for j in range(n):
                p = candidates[j]
                if stage > 0:
                    fits = within < 0 or pool[p, FIRST] >= now - within
                    for c in range(bounds[stage], bounds[stage + 1]):
                        if fits and c != skip:
                            earlier = values[conditions[c, 3], rows[p, conditions[c, 2]]]
                            if not w.holds(conditions[c, 0], values[conditions[c, 1], row], earlier):
                                fits = False
                                break
                    if not fits:
                        continue
                    if index[stage, 0] <= w.HASH:
                        w.leave_chain(p, pool, heads, tails)
                    else:
                        w.leave_heap(p, slot * stages + stage, pool, roots)
                rows[p, stage] = row
                if stage == stages - 1:
                    meta[LAST_WAITING] -= 1
                    for before in range(stages):
                        out[m, before] = rows[p, before]
                    m += 1
                    if not every:
                        armed[slot] = 2
                    older, younger = pool[p, OLDER], pool[p, YOUNGER]
                    if older >= 0:
                        pool[older, YOUNGER] = younger
                    else:
                        meta[OLDEST] = younger
                    if younger >= 0:
                        pool[younger, OLDER] = older
                    else:
                        meta[YOUNGEST] = older
                    pool[p, w.STATE] = -1
                    pool[p, w.NEXT] = meta[FREE]
                    meta[FREE] = p
                    meta[LIVE] -= 1
                    continue
                # -- let it wait for the next stage
                pool[p, w.STATE], pool[p, w.CAME] = stage + 1, meta[ARRIVALS]
                meta[ARRIVALS] += 1
                if stage + 1 == stages - 1:
                    meta[LAST_WAITING] += 1
                kind, c = index[stage + 1, 0], index[stage + 1, 1]
                value = 0 if kind <= w.UNLIKE else values[conditions[c, 3], rows[p, conditions[c, 2]]]
                if kind <= w.HASH:
                    bucket = w.bucket_of(stage + 1, slot, value, buckets)
                    pool[p, w.VALUE], pool[p, w.BUCKET] = value, bucket
                    pool[p, w.NEXT], pool[p, w.PREV] = -1, tails[bucket]
                    if tails[bucket] >= 0:
                        pool[tails[bucket], w.NEXT] = p
                    else:
                        heads[bucket] = p
                    tails[bucket] = p
                else:
                    w.enter_heap(p, slot * stages + stage + 1, value, kind, pool, roots)
    return stop, m


@kernel
def rehang(order, index, pool, heads, tails):
    """Hang partial matches, in the order given, into new and empty chains."""
    for p in order:
        if index[pool[p, w.STATE], 0] <= w.HASH:
            bucket = w.bucket_of(pool[p, w.STATE], pool[p, w.SLOT], pool[p, w.VALUE], len(heads))
            w.enter_chain(p, bucket, pool, heads, tails)


@kernel
def plant(slots, firsts, waits_for, entries, record_rows, values, conditions, index, pool, rows, roots, begun, meta):
    """Put saved partial matches, the oldest first, into the first places of an empty pool; chains come after."""
    stages = rows.shape[1]
    for p in range(len(slots)):
        rows[p] = record_rows[p]
        pool[p, w.STATE], pool[p, w.SLOT], pool[p, FIRST] = waits_for[p], slots[p], firsts[p]
        pool[p, BORN], pool[p, w.CAME] = p, entries[p]
        begun[slots[p]] = firsts[p]
        pool[p, OLDER], pool[p, YOUNGER] = p - 1, p + 1
        if waits_for[p] == stages - 1:
            meta[LAST_WAITING] += 1
        kind, c = index[waits_for[p], 0], index[waits_for[p], 1]
        value = 0 if kind <= w.UNLIKE else values[conditions[c, 3], rows[p, conditions[c, 2]]]
        if kind <= w.HASH:
            pool[p, w.VALUE] = value
        else:
            w.enter_heap(p, slots[p] * stages + waits_for[p], value, kind, pool, roots)
    if len(slots):
        pool[len(slots) - 1, YOUNGER] = -1
        meta[OLDEST], meta[YOUNGEST] = 0, len(slots) - 1
    meta[FREE], meta[LIVE], meta[BIRTHS] = len(slots), len(slots), len(slots)
