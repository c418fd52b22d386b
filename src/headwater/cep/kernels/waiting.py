"""Where partial matches wait for their next record: in chains of a hash table, by value, or in heaps, by order.

A node is a row of an array whose first columns are those below. A chain keeps the order in which nodes came; a pairing heap
has its least value at the root.
"""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np

from headwater.data.hashing import mix
from headwater.data.jit import small_kernel as kernel

#: the first columns of every node
VALUE, NEXT, PREV, CHILD, CAME, BUCKET, SLOT, STATE = range(8)
FIELDS = 8
#: comparisons of this record with an earlier one
EQ, NE, LT, LE, GT, GE = range(6)
#: how a place finds those that wait for it: all of them, those that came since an equal record, by value, by order
ALL, UNLIKE, HASH, LOW, HIGH = range(5)
NULL = -(2**63)  #: stands for a missing value, which compares with nothing
NAN = NULL + 1  #: stands for NaN, which is unequal to everything; above it, all values are in order
NOT_IN_HEAP = -2

_ODD = np.uint64(0x9E3779B97F4A7C15)


@kernel
def holds(op, left, right):
    """Compare two values; a missing one is neither equal nor unequal to anything."""
    if left <= NAN or right <= NAN:
        return op == NE and left != NULL and right != NULL
    if op == EQ:
        return left == right
    if op == NE:
        return left != right
    if op == LT:
        return left < right
    if op == LE:
        return left <= right
    if op == GT:
        return left > right
    return left >= right


@kernel
def bucket_of(stage, slot, value, buckets):
    """Return the chain of a place, a key and a value."""
    h = mix(np.uint64(value) ^ (np.uint64(slot) * _ODD) ^ (np.uint64(stage) << np.uint64(56)))
    return np.int64(h & np.uint64(buckets - 1))


# -- chains -----------------------------------------------------------------------------------------------------------


@kernel
def enter_chain(p, bucket, nodes, heads, tails):
    """Let node p wait at the end of a chain."""
    nodes[p, BUCKET], nodes[p, NEXT], nodes[p, PREV] = bucket, -1, tails[bucket]
    if tails[bucket] >= 0:
        nodes[tails[bucket], NEXT] = p
    else:
        heads[bucket] = p
    tails[bucket] = p


@kernel
def leave_chain(p, nodes, heads, tails):
    """Take node p out of its chain."""
    before, after, bucket = nodes[p, PREV], nodes[p, NEXT], nodes[p, BUCKET]
    if before >= 0:
        nodes[before, NEXT] = after
    else:
        heads[bucket] = after
    if after >= 0:
        nodes[after, PREV] = before
    else:
        tails[bucket] = before


# -- a pairing heap: CHILD is the first child, NEXT the right sibling, PREV the left one or the parent ---------------------


@kernel
def _meld(a, b, nodes):
    if a < 0:
        return b
    if b < 0:
        return a
    if nodes[b, VALUE] < nodes[a, VALUE]:
        a, b = b, a
    child = nodes[a, CHILD]
    nodes[b, NEXT] = child
    if child >= 0:
        nodes[child, PREV] = b
    nodes[b, PREV] = a
    nodes[a, CHILD] = b
    return a


@kernel
def _meld_children(p, nodes):
    """Make one heap of p's children: pairs from left to right, then all from right to left."""
    pairs = -1
    child = nodes[p, CHILD]
    nodes[p, CHILD] = -1
    while child >= 0:
        second = nodes[child, NEXT]
        after = -1
        if second >= 0:
            after = nodes[second, NEXT]
            nodes[second, NEXT] = -1
            nodes[second, PREV] = -1
        nodes[child, NEXT] = -1
        nodes[child, PREV] = -1
        pair = _meld(child, second, nodes)
        nodes[pair, NEXT] = pairs  # pairs are strung up by NEXT, the last one first
        pairs = pair
        child = after
    root = -1
    while pairs >= 0:
        before = nodes[pairs, NEXT]
        nodes[pairs, NEXT] = -1
        nodes[pairs, PREV] = -1
        root = _meld(root, pairs, nodes)
        pairs = before
    return root


@kernel
def _cut(p, root, nodes):
    """Take p out of its heap and return the new root."""
    rest = _meld_children(p, nodes)
    if p == root:
        return rest
    before, after = nodes[p, PREV], nodes[p, NEXT]
    if nodes[before, CHILD] == p:
        nodes[before, CHILD] = after
    else:
        nodes[before, NEXT] = after
    if after >= 0:
        nodes[after, PREV] = before
    nodes[p, NEXT] = -1
    nodes[p, PREV] = -1
    return _meld(root, rest, nodes)


@kernel
def enter_heap(p, at, value, kind, nodes, roots):
    """Let p wait by order; a missing value is in no order, and so in no heap."""
    if value <= NAN:
        nodes[p, CHILD] = NOT_IN_HEAP
        return
    nodes[p, VALUE] = ~value if kind == HIGH else value  # ~ reverses the order without overflow
    nodes[p, CHILD], nodes[p, NEXT], nodes[p, PREV] = -1, -1, -1
    roots[at] = _meld(roots[at], p, nodes)


@kernel
def leave_heap(p, at, nodes, roots):
    """Take p out of the heap it waits in, if any."""
    if nodes[p, CHILD] != NOT_IN_HEAP:
        roots[at] = _cut(p, roots[at], nodes)


@kernel
def in_reach(at, value, kind, strictly, nodes, roots, out, start):
    """Write the nodes whose value lies below this one's to `out`, from `start` on, in no order; return their number."""
    if value <= NAN:
        return 0
    if kind == HIGH:
        value = ~value
    n = start
    while roots[at] >= 0:
        p = roots[at]
        if nodes[p, VALUE] > value or (strictly and nodes[p, VALUE] == value):
            break
        roots[at] = _cut(p, p, nodes)
        out[n] = p
        n += 1
    # they stay in the heap until they move on
    for i in range(start, n):
        p = out[i]
        nodes[p, CHILD], nodes[p, NEXT], nodes[p, PREV] = -1, -1, -1
        roots[at] = _meld(roots[at], p, nodes)
    return n - start


# -- order ------------------------------------------------------------------------------------------------------------


@kernel
def sort(rows, n, table, column):
    """Sort the first n of `rows` by a column of the table's rows, in place: mostly they are in order already."""
    i = 1
    while i < n and table[rows[i - 1], column] <= table[rows[i], column]:
        i += 1
    if i >= n:
        return
    for start in range(n // 2 - 1, -1, -1):
        _sift(rows, start, n, table, column)
    for stop in range(n - 1, 0, -1):
        rows[0], rows[stop] = rows[stop], rows[0]
        _sift(rows, 0, stop, table, column)


@kernel
def _sift(rows, parent, stop, table, column):
    """Let an entry sink below all that are larger."""
    while 2 * parent + 1 < stop:
        child = 2 * parent + 1
        if child + 1 < stop and table[rows[child], column] < table[rows[child + 1], column]:
            child += 1
        if table[rows[parent], column] >= table[rows[child], column]:
            return
        rows[parent], rows[child] = rows[child], rows[parent]
        parent = child
