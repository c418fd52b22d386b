"""The scores and constraints of a placement, compiled, over the columns of a `Dense`."""

from __future__ import annotations

import numpy as np

from headwater.data.jit import kernel
from headwater.net.arrays import Floats, Ints
from headwater.place import constraint_table as table
from headwater.place.dense import Dense

OUT = 8
"""Six measures as in `MEASURES`, the number of kinds of constraints broken, and by how much in all."""
SLACK = table.SLACK
CPU, ENERGY, ACCESS = (table.LIMITS.index(limit) for limit in (table.CPU, table.ENERGY, table.ACCESS))
NO_BUDGET = 1e18
"""Stands for an infinite share: measures are weighted and summed, and nothing times infinity is no number."""


def scratch(dense: Dense) -> tuple[Floats, Floats]:
    """Room for `evaluate`: sums per device, and the end of the slowest path per step."""
    return np.zeros((3 + len(table.LIMITS), dense.service.shape[1])), np.zeros(dense.service.shape[0])


@kernel
def _over(used: float, limit: float) -> float:
    """By what part of a limit more is used than there is; of no limit at all, by what is used."""
    return used / limit - 1 if limit > 0 else used


@kernel
def evaluate_all(dense: Dense, places: Ints, sums: Floats, until: Floats, outs: Floats) -> None:
    """Evaluate many placements, one per row: a call that hands over a whole dense is dear."""
    if dense.turns_only:
        _evaluate_turns(dense, places, sums, until, outs)
    else:
        for row in range(len(places)):
            evaluate(dense, places[row], sums, until, outs[row])


@kernel
def _evaluate_turns(dense: Dense, places: Ints, sums: Floats, until: Floats, outs: Floats) -> None:
    """Write only the slowest path, full turns and empty batteries.

    Indices are unsigned, since a signed one might count from the end, and asking takes as long as the rest.
    """
    turn, fastest, draw_ma = sums[0], sums[1], sums[2]
    service, rate, draw, allowed = dense.service_of, dense.rate, dense.draw_of, dense.allowed
    draw_0, budget, window, order = dense.draw_0, dense.budget, dense.window, dense.order
    kind, zone, tail, send = dense.kind, dense.zone, dense.tail, dense.send
    in_start, in_stream, all_allowed = dense.in_start, dense.in_stream, dense.all_allowed
    n, r = dense.service.shape
    for row in range(len(places)):
        place, out = places[row], outs[row]
        for k in range(r):
            turn[k] = fastest[k] = 0.0
            draw_ma[k] = draw_0[k]
        late = empty = forbidden = 0
        excess = 0.0
        for i in range(n):
            host = np.uint64(place[i])
            c = np.uint64(kind[host])
            takes = service[i, c]
            turn[host] += takes
            draw_ma[host] += draw[i, c]
            if rate[i] > fastest[host] and takes > 0:
                fastest[host] = rate[i]
            if not all_allowed and not allowed[i, host]:
                forbidden = 1
                excess += 1.0
        for k in range(r):
            if fastest[k] * turn[k] >= 1:
                late = 1
                excess += fastest[k] * turn[k] - 1
            if draw_ma[k] > budget[k] * (1 + SLACK) and draw_ma[k] > draw_0[k]:
                empty = 1
                excess += _over(draw_ma[k], budget[k])
        critical = 0.0
        for at in range(n):
            step = np.uint64(order[at])
            host = np.uint64(place[step])
            start = 0.0
            for at_stream in range(np.uint64(in_start[step]), np.uint64(in_start[step + np.uint64(1)])):
                e = np.uint64(in_stream[at_stream])
                before = np.uint64(tail[e])
                a = np.uint64(place[before])
                way = np.uint64((a != host) * (1 + (zone[a] != zone[host])))
                start = max(start, until[before] + send[e, way])
            if service[step, np.uint64(kind[host])] > 0:
                start += turn[host]
            start += window[step]
            until[step] = start
            if start > critical:
                critical = start
        out[:] = 0.0
        out[0], out[6], out[7] = critical, late + empty + forbidden, excess


@kernel
def evaluate(dense: Dense, place: Ints, sums: Floats, until: Floats, out: Floats) -> None:
    """Write the measures and broken constraints of a placement (a column per step) to `out`."""
    if dense.turns_only:
        _evaluate_turns(dense, place.reshape((1, len(place))), sums, until, out.reshape((1, OUT)))
        return
    turn, fastest, seen, used = sums[0], sums[1], sums[2], sums[3:]
    turn[:], fastest[:], seen[:], used[:] = dense.turn_0, dense.fastest_0, 0.0, dense.base
    n, m, limits = dense.service.shape[0], dense.tail.shape[0], dense.most.shape[0]
    broken = 0
    excess = 0.0
    for i in range(n):
        k = place[i]
        service = dense.service[i, k]
        if service > 0:
            turn[k] += service
            fastest[k] = max(fastest[k], dense.rate[i])
        for c in range(limits):
            used[c, k] += dense.use[c, i, k]
        if not dense.allowed[i, k]:
            broken |= 1
            excess += 1.0
        until[i] = -1.0
    for pair in range(dense.together.shape[0]):
        if place[dense.together[pair, 0]] != place[dense.together[pair, 1]]:
            broken |= 2
            excess += 1.0
    wan = 0.0
    money = 0.0
    for e in range(m):
        a, b = place[dense.tail[e]], place[dense.head[e]]
        if a != b:
            for c in range(limits):
                used[c, a] += dense.bytes_hz[e] * dense.per_byte[c, a]
                used[c, b] += dense.bytes_hz[e] * dense.per_byte[c, b]
            if dense.zone[a] != dense.zone[b]:
                wan += dense.bytes_hz[e]
                money += dense.bytes_hz[e] * 3.6e-6 * dense.egress[a]
    devices = 0
    energy = 0.0
    for i in range(n):  # each host once: by its first step
        k = place[i]
        if seen[k] > 0:
            continue
        seen[k] = 1.0
        devices += 1
        money += dense.price[k]
        draw_ma, budget = used[ENERGY, k], dense.most[ENERGY, k]
        energy = max(energy, draw_ma / budget if budget > 0 else (NO_BUDGET if draw_ma > 0 else 0.0))
        if dense.model == 2 and fastest[k] * turn[k] >= 1:
            broken |= 4 << CPU
            excess += fastest[k] * turn[k] - 1
        for c in range(limits):
            if used[c, k] > dense.most[c, k] * (1 + SLACK):
                broken |= 4 << c
                excess += _over(used[c, k], dense.most[c, k])
    aggregate = 0.0
    critical = 0.0
    for at in range(n):
        i = dense.order[at]
        k = place[i]
        service = dense.service[i, k]
        if service == 0:
            step_s = 0.0
        elif dense.model == 2:
            step_s = turn[k]
        else:
            load = dense.load[i, k]
            if load >= 1:
                broken |= 4 << CPU
                excess += load - 1
            if dense.model == 1:
                load = used[CPU, k]
            step_s = service / (1 - load) if load < 1 else 1e3 * load
        step_s += dense.window[i]
        aggregate += dense.step_paths[i] * step_s
        start = 0.0
        for at_stream in range(dense.in_start[i], dense.in_start[i + 1]):
            e = dense.in_stream[at_stream]
            a = place[dense.tail[e]]
            hop = 0.0
            if a != k:
                hop = dense.send[e, dense.way[a, k]] + dense.latency[a, k]
                if not hop < np.inf:  # no way, or a stream faster than it
                    broken |= 4 << ACCESS
                    excess += 1.0
                    hop = 1e3
                aggregate += dense.stream_paths[e] * hop
            start = max(start, until[dense.tail[e]] + hop)
        until[i] = start + step_s
        critical = max(critical, until[i])
    out[0], out[1], out[2], out[3], out[4], out[5] = critical, aggregate, wan, energy, money, devices
    for row in range(dense.caps.shape[0]):
        total = 0.0
        for measure in range(6):
            total += dense.caps[row, measure] * out[measure]
        if total > dense.caps[row, 6] * (1 + SLACK) + 1e-12:
            broken |= 4 << limits
            excess += (total - dense.caps[row, 6]) / max(dense.caps[row, 6], 1e-12)
    kinds = 0
    while broken:
        kinds += broken & 1
        broken >>= 1
    out[6], out[7] = kinds, excess
