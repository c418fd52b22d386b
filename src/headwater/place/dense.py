"""A problem over a handful of devices as dense arrays, the form that compiled searches work on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwater.net.arrays import Flags, Floats, Ints
from headwater.place import constraint_table as table
from headwater.place.objective import Objective
from headwater.place.problem import NOTHING_TAKEN, Model, Problem
from headwater.place.score import MEASURES


class Dense(NamedTuple):
    """One row per step or stream, one column per listed device; compiled code takes it whole."""

    model: int
    """0 every step its own queue, 1 steps share the processor, 2 round-robin."""
    device: Ints
    service: Floats
    """Seconds that a step holds a record on each device when it is alone there."""
    load: Floats
    """The part of each device that a step keeps busy."""
    rate: Floats
    window: Floats
    allowed: Flags
    use: Floats
    """What each step uses of each of `LIMITS` on each device."""
    per_byte: Floats
    """What a stream across a device's border uses of each limit, per byte and second."""
    base: Floats
    """What is used of each limit beside: by the device itself and by other flows."""
    most: Floats
    turn_0: Floats
    fastest_0: Floats
    price: Floats
    egress: Floats
    zone: Ints
    tail: Ints
    head: Ints
    bytes_hz: Floats
    send: Floats
    """Seconds of each stream on each kind of way, propagation left out where `latency` holds it."""
    way: Ints
    """The kind of way between two devices; 0 is the device itself."""
    latency: Floats
    order: Ints
    in_start: Ints
    in_stream: Ints
    step_paths: Floats
    stream_paths: Floats
    free: Ints
    fixed: Ints
    """The column of each pinned step, −1 for a free one."""
    together: Ints
    """Pairs of steps that must share a device."""
    caps: Floats
    """Per target the weights of the measures and, last, the limit."""
    kind: Ints
    """The class of each device."""
    service_of: Floats
    """As `service` and the use of energy, but a column per class: small enough to stay near the processor."""
    draw_of: Floats
    draw_0: Floats
    budget: Floats
    """`base` and `most` of energy: cutting them out of a table takes as long as a third of a placement's turns."""
    all_allowed: bool
    turns_only: bool
    """Whether only the slowest path, turns and batteries matter, as for Ghosh and Simmhan."""
    twin: Ints
    """For each device the one before it that is its equal in everything, or −1."""


def dense(problem: Problem, devices: Ints, goal: Objective | None = None) -> Dense:
    """Restrict a problem to some devices, which must include those of pinned steps.

    With the goal known, scores of what is not asked for may be left out.
    """
    net, kinds = problem.net, problem.net.class_of[devices].astype(np.int64)
    classes, column = net.classes, {int(d): c for c, d in enumerate(devices)}
    zone = net.zone_of(devices).astype(np.int64)
    others = [problem.taken.get(int(d), NOTHING_TAKEN) for d in devices]
    columns, limits = table.devices(problem, devices), table.limits(problem)
    base = limits.idle[:, kinds] + np.array([table.used_by_others(problem, int(d)) for d in devices]).T
    most, energy = limits.most[:, kinds], table.LIMITS.index(table.ENERGY)
    # pins are fixed and rates are in the time of a step: neither is asked again for each placement
    static = (table.CLOSED, table.CLASS, table.ZONE)
    allowed = np.stack([table.fits(problem, step, columns, static) for step in range(len(problem.steps))])
    send, way, latency = _ways(problem, devices, kinds, zone)
    starts = np.cumsum([0] + [len(streams) for streams in problem.inputs])
    fixed = np.array([column.get(int(d), -1) if d >= 0 else -1 for d in problem.pinned])
    finite = np.where(np.isfinite(problem.held_s), problem.held_s, 0.0)
    load = np.where(np.isfinite(problem.held_s), problem.load, 0.0)
    return Dense(
        model=1 if problem.shares_processor else 2 if problem.model is Model.ROUND_ROBIN else 0,
        device=devices.astype(np.int64),
        service=finite[:, kinds],
        load=load[:, kinds],
        rate=problem.rate_hz.astype(float),
        window=problem.window_s.astype(float),
        allowed=allowed,
        use=limits.step[:, :, kinds],
        per_byte=limits.per_byte[:, kinds],
        base=base,
        most=most,
        turn_0=np.array([t.turn_s for t in others]),
        fastest_0=np.array([t.fastest_hz for t in others]),
        price=np.array([classes[k].price_per_hour for k in kinds]),
        egress=np.array([classes[k].egress_per_gb for k in kinds]),
        zone=zone,
        tail=problem.stream_from.astype(np.int64),
        head=problem.stream_to.astype(np.int64),
        bytes_hz=problem.stream_bytes_hz.astype(float),
        send=send,
        way=way,
        latency=latency,
        order=np.array(problem.order, np.int64),
        in_start=starts.astype(np.int64),
        in_stream=np.array([e for streams in problem.inputs for e in streams], np.int64),
        step_paths=problem.step_paths,
        stream_paths=problem.stream_paths,
        free=np.flatnonzero(problem.pinned < 0).astype(np.int64),
        fixed=fixed.astype(np.int64),
        together=table.pairs_together(problem),
        caps=_caps(problem),
        kind=kinds,
        service_of=finite,
        draw_of=limits.step[energy],
        draw_0=base[energy],
        budget=most[energy],
        all_allowed=bool(allowed.all()),
        turns_only=_turns_only(problem, goal),
        twin=_twins(problem, devices, kinds, zone, fixed),
    )


def _ways(problem: Problem, devices: Ints, kinds: Ints, zone: Ints) -> tuple[Floats, Ints, Floats]:
    net, same = problem.net, np.eye(len(devices), dtype=bool)
    m, r = len(problem.stream_from), len(devices)
    if problem.hop_s is not None:
        way = np.where(same, 0, np.where(zone[:, None] == zone, 1, 2))
        return np.concatenate([np.zeros((m, 1)), problem.hop_s], axis=1), way, np.zeros((r, r))
    speeds = np.minimum(net.access_bps[kinds][:, None], net.access_bps[kinds])
    kinds_of_way, way = np.unique(speeds, return_inverse=True)
    way = np.where(same, 0, way.reshape(r, r) + 1)
    bits = problem.stream_bytes * problem.bits_per_byte
    load = problem.stream_bps if problem.model is not Model.ROUND_ROBIN else np.zeros(m)
    with np.errstate(divide="ignore", invalid="ignore"):
        send = np.where(bits[:, None] == 0, 0.0, bits[:, None] / (kinds_of_way - load[:, None]))
    send[~table.LINK.is_open(problem.stream_bps[:, None], kinds_of_way, np.zeros(1))] = np.inf
    far = net.latency_s(devices[:, None], devices[None, :])
    return np.concatenate([np.zeros((m, 1)), send], axis=1), way, np.asarray(far, float)


def _turns_only(problem: Problem, goal: Objective | None) -> bool:
    free_links = all(c.access_bps == np.inf and not c.radio_mas_per_byte for c in problem.net.classes)
    least_memory = min(c.memory_bytes for c in problem.net.classes)
    return bool(
        goal is not None
        and all(measure == "critical" for level in goal.levels for measure, _ in level)
        and problem.model is Model.ROUND_ROBIN
        and problem.hop_s is not None
        and free_links
        and problem.memory_bytes.sum() <= least_memory
        and not problem.together
        and not problem.at_most
        and not problem.taken
    )


def _caps(problem: Problem) -> Floats:
    rows = [[dict(level).get(m, 0.0) for m in MEASURES] + [limit] for level, limit in problem.at_most]
    return np.array(rows, float).reshape(-1, len(MEASURES) + 1)


def _twins(problem: Problem, devices: Ints, kinds: Ints, zone: Ints, fixed: Ints) -> Ints:
    """Devices are twins when class, zone, distance and load agree and no step is pinned to either."""
    last: dict[object, int] = {}
    twin = np.full(len(devices), -1)
    for column, device in enumerate(devices.tolist()):
        if column in fixed or device in problem.taken:
            continue
        key = (int(kinds[column]), int(zone[column]), float(problem.net.lan_s[device]))
        twin[column] = last.get(key, -1)
        last[key] = column
    return twin
