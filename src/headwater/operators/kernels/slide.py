"""Sliding windows, record by record: what leaves when a record comes, and aggregates that follow along.

Records in windows are nodes of a pool, chained by window in order of arrival. `slide` runs first and says which nodes leave
before each record (`leaving[ends[i - 1]:ends[i]]`, of the groups in `leaving_groups`) and which node the record gets; each
aggregate then replays that.
"""

# ruff: noqa: D103
# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headwater.data.jit import kernel

FREE, LIVE, BORN = range(3)  #: entries of `meta`
META = 3
_LEAST, _MOST = -(2**63), 2**63 - 1


class Moves(NamedTuple):
    """What happened in a batch: the group and node of each record, and the nodes that left before it."""

    groups: Any
    node_of: Any
    ends: Any
    leaving: Any
    leaving_groups: Any  #: the groups of those


@kernel
def slide(windows, groups, times, limit, span, pool, moves):
    """Let records enter their windows: the last `limit` ones (0 for any number) of the last `span` (0 for any age)."""
    following, group, time, born, head, tail, count, meta = pool
    _, node_of, ends, leaving, leaving_groups = moves
    n = 0
    for i in range(len(windows)):
        w = windows[i]
        # time does not run back in a window
        now = times[i] if tail[w] < 0 else max(times[i], time[tail[w]])
        while head[w] >= 0 and ((limit > 0 and count[w] >= limit) or (span > 0 and time[head[w]] <= now - span)):
            n = _leave(w, pool, leaving, leaving_groups, n)
        ends[i] = n
        node = meta[FREE]
        meta[FREE] = following[node]
        following[node] = -1
        group[node], time[node], born[node] = groups[i], now, meta[BORN]
        meta[BORN] += 1
        meta[LIVE] += 1
        if head[w] < 0:
            head[w] = node
        else:
            following[tail[w]] = node
        tail[w] = node
        count[w] += 1
        node_of[i] = node
    return n


@kernel
def _leave(w, pool, leaving, leaving_groups, n):
    following, group, _, _, head, tail, count, meta = pool
    node = head[w]
    head[w] = following[node]
    if head[w] < 0:
        tail[w] = -1
    count[w] -= 1
    following[node] = meta[FREE]
    meta[FREE] = node
    meta[LIVE] -= 1
    leaving[n], leaving_groups[n] = node, group[node]
    return n + 1


@kernel
def sweep(now, span, pool, leaving, leaving_groups):
    """Let everything leave that is older than `span`, in all windows."""
    time, head = pool[2], pool[4]
    n = 0
    for w in range(len(head)):
        while head[w] >= 0 and time[head[w]] <= now - span:
            n = _leave(w, pool, leaving, leaving_groups, n)
    return n


@kernel
def count_along(moves, counts, out):
    groups, _, ends, leaving, leaving_groups = moves
    done = 0
    for i in range(len(groups)):
        while done < ends[i]:
            counts[leaving_groups[done]] -= 1
            done += 1
        counts[groups[i]] += 1
        out[i] = counts[groups[i]]
    while done < len(leaving):
        counts[leaving_groups[done]] -= 1
        done += 1


@kernel
def _carry(x, g, totals, carries):
    """Add x to a sum of whole numbers, and count how often that passes the end of 64 bits.

    The compiler takes for granted that nothing wraps around, so this is asked before, and the sum is put together from
    halves that do not.
    """
    if x > 0 and totals[g] > _MOST - x:
        carries[g] += 1
        totals[g] = (totals[g] + _LEAST) + (x + _LEAST)
    elif x < 0 and totals[g] < _LEAST - x:
        carries[g] -= 1
        totals[g] = (totals[g] - _LEAST) + (x - _LEAST)
    else:
        totals[g] += x


@kernel
def _uncarry(x, g, totals, carries):
    """Take x away again; not the same as to add -x, since the least number has no counterpart."""
    if x < 0 and totals[g] > _MOST + x:
        carries[g] += 1
        totals[g] = (totals[g] + _LEAST) - (x - _LEAST)
    elif x > 0 and totals[g] < _LEAST + x:
        carries[g] -= 1
        totals[g] = (totals[g] - _LEAST) - (x + _LEAST)
    else:
        totals[g] -= x


@kernel
def sum_ints(values, valid, moves, node_values, node_valid, totals, carries, seen, out, out_carries, out_seen):
    """Follow the sum of whole numbers, exactly: it is `totals` and as many times 2**64 as were `carries`."""
    groups, node_of, ends, leaving, leaving_groups = moves
    done = 0
    for i in range(len(groups) + 1):
        end = ends[i] if i < len(groups) else len(leaving)
        while done < end:
            node = leaving[done]
            if node_valid[node]:
                _uncarry(node_values[node], leaving_groups[done], totals, carries)
                seen[leaving_groups[done]] -= 1
            done += 1
        if i == len(groups):
            break
        g, node = groups[i], node_of[i]
        if valid[i]:
            _carry(values[i], g, totals, carries)
            seen[g] += 1
        if node >= 0:
            node_values[node], node_valid[node] = values[i], valid[i]
        out[i], out_carries[i], out_seen[i] = totals[g], carries[g], seen[g]


@kernel
def _add(x, g, totals, rounding):
    """Add x to a sum and remember what rounding loses, so that what was added can be taken away again."""
    total = totals[g] + x
    if abs(totals[g]) >= abs(x):
        rounding[g] += (totals[g] - total) + x
    else:
        rounding[g] += (x - total) + totals[g]
    totals[g] = total


@kernel
def _count_odd(x, by, g, odd):
    """Count infinities and NaN apart: a sum could never get rid of them."""
    if np.isnan(x):
        odd[g, 0] += by
    elif x > 0:
        odd[g, 1] += by
    else:
        odd[g, 2] += by


@kernel
def _with_odd(total, g, odd):
    if odd[g, 0] > 0 or (odd[g, 1] > 0 and odd[g, 2] > 0):
        return np.nan
    if odd[g, 1] > 0:
        return np.inf
    if odd[g, 2] > 0:
        return -np.inf
    return total


@kernel
def _adjust(x, sign, g, sums):
    shift, totals, rounding, squares, rounding_squares, odd, _ = sums
    if not np.isfinite(x):
        _count_odd(x, sign, g, odd)
        return
    d = x - shift[g]
    _add(sign * d, g, totals, rounding)
    _add(sign * d * d, g, squares, rounding_squares)


@kernel
def sum_floats(values, valid, moves, node_values, node_valid, sums, deviation, out, out_seen):
    """Follow the sum, or with `deviation` the standard deviation of the window as a whole population.

    Only the deviation is taken from a shifted origin, each time a group begins: no cancellation when the mean is large.
    """
    groups, node_of, ends, leaving, leaving_groups = moves
    shift, totals, rounding, squares, rounding_squares, odd, seen = sums
    done = 0
    for i in range(len(groups) + 1):
        end = ends[i] if i < len(groups) else len(leaving)
        while done < end:
            node = leaving[done]
            g = leaving_groups[done]
            if node_valid[node]:
                seen[g] -= 1
                if seen[g] == 0:
                    totals[g] = rounding[g] = squares[g] = rounding_squares[g] = 0.0
                    odd[g] = 0
                else:
                    _adjust(node_values[node], -1, g, sums)
            done += 1
        if i == len(groups):
            break
        g, node = groups[i], node_of[i]
        if valid[i]:
            if seen[g] == 0:
                shift[g] = values[i] if deviation and np.isfinite(values[i]) else 0.0
            seen[g] += 1
            _adjust(values[i], 1, g, sums)
        if node >= 0:
            node_values[node], node_valid[node] = values[i], valid[i]
        total = totals[g] + rounding[g]
        if deviation:
            if odd[g, 0] + odd[g, 1] + odd[g, 2] > 0:
                out[i] = np.nan
            else:
                n = max(seen[g], 1)
                mean = total / n
                out[i] = np.sqrt(max((squares[g] + rounding_squares[g]) / n - mean * mean, 0.0))
        else:
            out[i] = _with_odd(total, g, odd)
        out_seen[i] = seen[g]


@kernel
def extreme(values, valid, moves, node_values, before, after, first, last, best, seen, largest, out, out_seen):
    """Follow the smallest (or largest) value: a group's candidates form a list in which values only grow (or shrink)."""
    groups, node_of, ends, leaving, leaving_groups = moves
    done = 0
    for i in range(len(groups) + 1):
        end = ends[i] if i < len(groups) else len(leaving)
        while done < end:
            node = leaving[done]
            g = leaving_groups[done]
            if first[g] == node:
                first[g] = after[node]
                if first[g] < 0:
                    last[g] = -1
                else:
                    before[first[g]] = -1
            done += 1
        if i == len(groups):
            break
        g, node = groups[i], node_of[i]
        v = values[i]
        if node < 0:
            # no window: the best so far is all there is to know
            if valid[i]:
                if seen[g] == 0 or (v > best[g] if largest else v < best[g]):
                    best[g] = v
                seen[g] += 1
            out[i], out_seen[i] = best[g], seen[g]
            continue
        if valid[i]:
            while last[g] >= 0 and (node_values[last[g]] <= v if largest else node_values[last[g]] >= v):
                last[g] = before[last[g]]
            node_values[node] = v
            before[node], after[node] = last[g], -1
            if last[g] >= 0:
                after[last[g]] = node
            else:
                first[g] = node
            last[g] = node
        if first[g] >= 0:
            out[i], out_seen[i] = node_values[first[g]], 1
        else:
            out_seen[i] = 0


@kernel
def distinct(codes, valid, moves, node_codes, uses, counts, out):
    """Follow the number of different values; equal values of a group have equal codes, a missing one has -1."""
    groups, node_of, ends, leaving, leaving_groups = moves
    done = 0
    for i in range(len(groups) + 1):
        end = ends[i] if i < len(groups) else len(leaving)
        while done < end:
            node = leaving[done]
            code = node_codes[node]
            if code >= 0:
                uses[code] -= 1
                if uses[code] == 0:
                    counts[leaving_groups[done]] -= 1
            done += 1
        if i == len(groups):
            break
        g, node = groups[i], node_of[i]
        if valid[i]:
            if uses[codes[i]] == 0:
                counts[g] += 1
            uses[codes[i]] += 1
        if node >= 0:
            node_codes[node] = codes[i] if valid[i] else -1
        out[i] = counts[g]
