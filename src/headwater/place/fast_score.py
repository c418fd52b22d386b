"""The scores and constraints of a placement, compiled, over the columns of an arena."""

from __future__ import annotations

import numpy as np

from headwater.kernels.jit import kernel
from headwater.net.arrays import Floats, Ints
from headwater.place.arena import Arena

OUT = 8
"""Six measures as in `MEASURES`, the number of kinds of constraints broken, and by how much in all."""
SLACK = 1e-9
NO_BUDGET = 1e18
"""Stands for an infinite share: measures are weighted and summed, and nothing times infinity is no number."""


def scratch(arena: Arena) -> tuple[Floats, Floats]:
    """Room for `evaluate`: sums per device, and the end of the slowest path per step."""
    return np.zeros((6, arena.service.shape[1])), np.zeros(arena.service.shape[0])


@kernel
def _over(used: float, limit: float) -> float:
    """By what part of a limit more is used than there is; of no limit at all, by what is used."""
    return used / limit - 1 if limit > 0 else used


@kernel
def evaluate_all(arena: Arena, places: Ints, sums: Floats, until: Floats, outs: Floats) -> None:
    """Evaluate many placements, one per row: a call that hands over a whole arena is dear."""
    if arena.turns_only:
        _evaluate_turns(arena, places, sums, until, outs)
    else:
        for row in range(len(places)):
            evaluate(arena, places[row], sums, until, outs[row])


@kernel
def _evaluate_turns(arena: Arena, places: Ints, sums: Floats, until: Floats, outs: Floats) -> None:
    """Write only the slowest path, full turns and empty batteries.

    Indices are unsigned, since a signed one might count from the end, and asking takes as long as the rest.
    """
    turn, fastest, drawn = sums[0], sums[1], sums[2]
    service, rate, draw, allowed = arena.service_of, arena.rate, arena.draw_of, arena.allowed
    draw_0, budget, window, order = arena.draw_0, arena.budget, arena.window, arena.order
    kind, zone, tail, send = arena.kind, arena.zone, arena.tail, arena.send
    in_start, in_stream, all_allowed = arena.in_start, arena.in_stream, arena.all_allowed
    n, r = arena.service.shape
    for row in range(len(places)):
        place, out = places[row], outs[row]
        for k in range(r):
            turn[k] = fastest[k] = 0.0
            drawn[k] = draw_0[k]
        late = empty = forbidden = 0
        excess = 0.0
        for i in range(n):
            host = np.uint64(place[i])
            c = np.uint64(kind[host])
            takes = service[i, c]
            turn[host] += takes
            drawn[host] += draw[i, c]
            if rate[i] > fastest[host] and takes > 0:
                fastest[host] = rate[i]
            if not all_allowed and not allowed[i, host]:
                forbidden = 1
                excess += 1.0
        for k in range(r):
            if fastest[k] * turn[k] >= 1:
                late = 1
                excess += fastest[k] * turn[k] - 1
            if drawn[k] > budget[k] * (1 + SLACK) and drawn[k] > draw_0[k]:
                empty = 1
                excess += _over(drawn[k], budget[k])
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
def evaluate(arena: Arena, place: Ints, sums: Floats, until: Floats, out: Floats) -> None:
    """Write the measures and broken constraints of a placement (a column per step) to `out`."""
    if arena.turns_only:
        _evaluate_turns(arena, place.reshape((1, len(place))), sums, until, out.reshape((1, OUT)))
        return
    sums[:] = 0.0
    sums[1], sums[2] = arena.turn_0, arena.fastest_0
    busy, turn, fastest, memory, bps, draw = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    n, m = arena.service.shape[0], arena.tail.shape[0]
    broken = 0
    excess = 0.0
    for i in range(n):
        k = place[i]
        service = arena.service[i, k]
        if service > 0:
            busy[k] += arena.load[i, k]
            turn[k] += service
            fastest[k] = max(fastest[k], arena.rate[i])
        memory[k] += arena.memory[i]
        draw[k] += arena.draw[i, k]
        if not arena.allowed[i, k]:
            broken |= 1
            excess += 1.0
        until[i] = -1.0
    for pair in range(arena.together.shape[0]):
        if place[arena.together[pair, 0]] != place[arena.together[pair, 1]]:
            broken |= 2
            excess += 1.0
    wan = 0.0
    money = 0.0
    for e in range(m):
        a, b = place[arena.tail[e]], place[arena.head[e]]
        if a != b:
            bps[a] += arena.bps[e]
            bps[b] += arena.bps[e]
            draw[a] += arena.bytes_hz[e] * arena.radio[a]
            draw[b] += arena.bytes_hz[e] * arena.radio[b]
            if arena.zone[a] != arena.zone[b]:
                wan += arena.bytes_hz[e]
                money += arena.bytes_hz[e] * 3.6e-6 * arena.egress[a]
    devices = 0
    energy = 0.0
    for i in range(n):  # each host once: by its first step
        k = place[i]
        if memory[k] < 0:
            continue
        devices += 1
        money += arena.price[k]
        drawn = draw[k] + arena.draw_0[k]
        share = drawn / arena.budget[k] if arena.budget[k] > 0 else (NO_BUDGET if drawn > 0 else 0.0)
        energy = max(energy, share)
        load = busy[k] + arena.busy_0[k]
        if load > 1 + SLACK:
            broken |= 4
            excess += load - 1
        if arena.model == 2 and fastest[k] * turn[k] >= 1:
            broken |= 4
            excess += fastest[k] * turn[k] - 1
        if share > 1 + SLACK:
            broken |= 8
            excess += _over(drawn, arena.budget[k])
        if memory[k] + arena.memory_0[k] > arena.memory_limit[k] * (1 + SLACK):
            broken |= 16
            excess += _over(memory[k] + arena.memory_0[k], arena.memory_limit[k])
        if bps[k] + arena.bps_0[k] > arena.access[k] * (1 + SLACK):
            broken |= 32
            excess += _over(bps[k] + arena.bps_0[k], arena.access[k])
        memory[k] = -1.0
    aggregate = 0.0
    critical = 0.0
    for at in range(n):
        i = arena.order[at]
        k = place[i]
        service = arena.service[i, k]
        if service == 0:
            own = 0.0
        elif arena.model == 2:
            own = turn[k]
        else:
            load = arena.load[i, k]
            if load >= 1:
                broken |= 4
                excess += load - 1
            if arena.model == 1:
                load = busy[k] + arena.busy_0[k]
            own = service / (1 - load) if load < 1 else 1e3 * load
        own += arena.window[i]
        aggregate += arena.step_paths[i] * own
        start = 0.0
        for at_stream in range(arena.in_start[i], arena.in_start[i + 1]):
            e = arena.in_stream[at_stream]
            a = place[arena.tail[e]]
            hop = 0.0
            if a != k:
                hop = arena.send[e, arena.way[a, k]] + arena.latency[a, k]
                if not hop < np.inf:  # no way, or a stream faster than it
                    broken |= 32
                    excess += 1.0
                    hop = 1e3
                aggregate += arena.stream_paths[e] * hop
            start = max(start, until[arena.tail[e]] + hop)
        until[i] = start + own
        critical = max(critical, until[i])
    out[0], out[1], out[2], out[3], out[4], out[5] = critical, aggregate, wan, energy, money, devices
    for row in range(arena.caps.shape[0]):
        reached = 0.0
        for measure in range(6):
            reached += arena.caps[row, measure] * out[measure]
        if reached > arena.caps[row, 6] * (1 + SLACK) + 1e-12:
            broken |= 64
            excess += (reached - arena.caps[row, 6]) / max(arena.caps[row, 6], 1e-12)
    kinds = 0
    while broken:
        kinds += broken & 1
        broken >>= 1
    out[6], out[7] = kinds, excess
