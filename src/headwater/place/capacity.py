"""The capacity on which strategies put steps: what each device still has, and what a step would cost there.

Devices that host nothing are alike within their zone and class, except for their distance to the gateway.
So the capacity looks at one row per group, its nearest empty device, and one row per device in use. A net of
ten million devices in a thousand zones is a capacity of some thousand rows, and every question is answered by
arrays over those rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from headwater.net.arrays import Flags, Floats, Ints
from headwater.net.nearest import nearest
from headwater.place import constraint_table as table
from headwater.place.problem import NOTHING_TAKEN, Model, Problem

Reach = tuple[int, int, float]
"""A stream to a placed neighbour, that neighbour's row, and the weight of the stream's time."""


class Capacity:
    """A growing placement with all loads that it causes.

    Columns over rows: `device`, `zone`, `kind`, `lan_s` (which device a row stands for), and what is used of each
    limit there, steps and other flows together. Rows below `groups` are the nearest empty of their group.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        net = problem.net
        self._index = nearest(net)
        self.groups = len(self._index.head)
        room = self.groups + 2 * len(problem.steps) + len(problem.taken) + len(problem.closed)
        self.rows = self.groups
        self._device = np.full(room, -1)
        self._zone, self._kind = np.zeros(room, np.int64), np.zeros(room, np.int64)
        self._lan_s, self._used = np.zeros(room), np.zeros((len(table.LIMITS), room))
        self._turn_s, self._fastest_hz = np.zeros(room), np.zeros(room)
        self._usable = np.ones(room, bool)
        self._device[: self.groups], self._lan_s[: self.groups] = self._index.head, self._index.lan_s
        self._zone[: self.groups], self._kind[: self.groups] = self._index.zone, self._index.kind
        self._row_of: dict[int, int] = {}
        self._next_free = np.zeros(self.groups, np.int64)
        self.at = np.full(len(problem.steps), -1)
        """The row of each placed step, −1 while it is not placed."""
        self._wan_rows: dict[int, Floats] = {}
        self._limits = table.limits(problem)
        self._room = self._limits.room
        self._bounded = [c for c, room in enumerate(self._room) if np.isfinite(room).any()]
        self._partner = {i: [j for j in group if j != i] for group in problem.together for i in group}
        for device, use in problem.taken.items():
            row = self._touch(device)
            self._used[:, row] = table.used_by_others(problem, device)
            self._turn_s[row], self._fastest_hz[row] = use.turn_s, use.fastest_hz
        for device in problem.closed:
            self._usable[self._touch(device)] = False

    @property
    def device(self) -> Ints:
        """The device that each row stands for."""
        return self._device[: self.rows]

    @property
    def zone(self) -> Ints:
        """The zone of each row."""
        return self._zone[: self.rows]

    @property
    def kind(self) -> Ints:
        """The class of each row."""
        return self._kind[: self.rows]

    @property
    def lan_s(self) -> Floats:
        """The LAN latency of each row."""
        return self._lan_s[: self.rows]

    @property
    def busy(self) -> Floats:
        """The utilisation of each row's device."""
        return self.used(table.CPU)

    @property
    def memory(self) -> Floats:
        """The bytes in use on each row's device."""
        return self.used(table.MEMORY)

    def used(self, limit: table.Limit) -> Floats:
        """What is in use on each row's device."""
        return np.asarray(self._used[table.LIMITS.index(limit), : self.rows])

    def row(self, device: int) -> int:
        """The row of a device, which it gets if it has none yet."""
        return self._row_of[device] if device in self._row_of else self._touch(device)

    def devices(self) -> Ints:
        """The device of each step."""
        return np.asarray(self._device[self.at])

    def _touch(self, device: int) -> int:
        if device in self._row_of:
            return self._row_of[device]
        if self.rows == len(self._device):
            self._grow()
        row, self.rows = self.rows, self.rows + 1
        self._row_of[device] = row
        net = self.problem.net
        self._device[row], self._lan_s[row] = device, net.lan_s[device]
        self._zone[row], self._kind[row] = net.zone_of(device), net.class_of[device]
        self._advance(self._index.group_of(device), device)
        return row

    def _advance(self, group: int, device: int) -> None:
        """Let a group's row stand for its next empty device, if `device` was the one."""
        if self._device[group] != device:
            return
        members, place = self._index.members(group), int(self._next_free[group])
        while place < len(members) and int(members[place]) in self._row_of:
            place += 1
        self._next_free[group] = place
        if place == len(members):
            self._usable[group] = False
        else:
            self._device[group], self._lan_s[group] = members[place], self.problem.net.lan_s[members[place]]

    def _grow(self) -> None:
        more = len(self._device)
        self._device, self._zone, self._kind = (
            np.concatenate([a, np.zeros(more, np.int64)]) for a in (self._device, self._zone, self._kind)
        )
        self._lan_s = np.concatenate([self._lan_s, np.zeros(more)])
        self._used = np.concatenate([self._used, np.zeros((len(self._used), more))], axis=1)
        self._turn_s, self._fastest_hz = (np.concatenate([a, np.zeros(more)]) for a in (self._turn_s, self._fastest_hz))
        self._usable = np.concatenate([self._usable, np.ones(more, bool)])

    def reaches(self, step: int, streams: Iterable[tuple[int, float]]) -> list[Reach]:
        """The streams of a step, each with a weight, whose other end is placed."""
        problem, out = self.problem, []
        for e, weight in streams:
            a, b = int(problem.stream_from[e]), int(problem.stream_to[e])
            row = int(self.at[b if a == step else a])
            if row >= 0:
                out.append((e, row, weight))
        return out

    def upstream(self, step: int) -> list[Reach]:
        """The incoming streams of a step from placed steps, all of weight 1."""
        return self.reaches(step, ((e, 1.0) for e in self.problem.inputs[step]))

    def around(self, step: int) -> list[Reach]:
        """All streams of a step from or to placed steps, weighted by the paths that use them."""
        problem = self.problem
        both = (*problem.inputs[step], *problem.outputs[step])
        return self.reaches(step, ((e, self.path_weight(e)) for e in both))

    def path_weight(self, stream: int) -> float:
        """The number of source-to-sink paths through a stream."""
        return float(self.problem.stream_paths[stream])

    def limits(self, step: int) -> Iterator[tuple[table.Constraint, Flags]]:
        """Each constraint on a step with the rows that satisfy it, given all steps placed so far."""
        problem, devices = self.problem, table.Devices(self.device, self.kind, self.zone)
        yield table.CLOSED, self._usable[: self.rows]
        for fit in table.FITS:
            mask = fit.mask(problem, step, devices)
            if mask is not None:
                yield fit, mask
        for other in self._partner.get(step, ()):
            if self.at[other] >= 0:
                yield table.TOGETHER, self.device == self._device[self.at[other]]
        reaches = self.reaches(step, ((e, 1.0) for e in (*problem.inputs[step], *problem.outputs[step])))
        yield from self._ways(reaches)
        yield from self._within_limits(step, self._bytes_hz(reaches))
        service = problem.held_s[step]
        if table.has_turns(problem) and service.any():
            turn_s = np.where(np.isfinite(service), service, 0.0)[self.kind]
            fastest = np.maximum(self._fastest_hz[: self.rows], problem.rate_hz[step])
            yield table.TURN, (turn_s == 0) | table.is_turn_kept(fastest, self._turn_s[: self.rows] + turn_s)

    def _ways(self, reaches: Sequence[Reach]) -> Iterator[tuple[table.Constraint, Flags]]:
        access = self.problem.net.access_bps
        for e, row, _ in reaches:
            bps, zone = self.problem.stream_bps[e], int(self._zone[row])
            of_class = table.LINK.is_open(bps, np.minimum(access, access[self._kind[row]]), 0.0)
            if not of_class.all():
                is_open = of_class[self.kind]
                is_open[row] = True
                yield table.LINK, is_open
            of_zone = table.ROUTE.is_open(bps, math.inf, self.wan_row(zone))
            if self.problem.hop_s is None and not of_zone.all():
                yield table.ROUTE, of_zone[self.zone]

    def _bytes_hz(self, reaches: Sequence[Reach]) -> dict[int, float]:
        """What a step sends to and gets from each row's device."""
        by_row: dict[int, float] = {}
        for e, row, _ in reaches:
            by_row[row] = by_row.get(row, 0.0) + float(self.problem.stream_bytes_hz[e])
        return by_row

    def _within_limits(self, step: int, by_row: dict[int, float]) -> Iterator[tuple[table.Constraint, Flags]]:
        for c in self._bounded:
            limit, room = table.LIMITS[c], self._room[c]
            yield limit, self._used[c, : self.rows] + self._need(c, step, by_row) <= room[self.kind]
            per_byte = self._limits.per_byte[c]
            for row, bytes_hz in by_row.items():
                kind = self._kind[row]
                if per_byte[kind] and self._used[c, row] + bytes_hz * per_byte[kind] > room[kind]:
                    alone = np.zeros(self.rows, bool)  # the neighbour has none left: the step must join it
                    alone[row] = True
                    yield limit, alone

    def _need(self, c: int, step: int, by_row: dict[int, float]) -> Floats:
        need, per_byte = self._limits.step[c, step][self.kind], self._limits.per_byte[c]
        if by_row and per_byte.any():
            traffic = np.full(self.rows, sum(by_row.values()))
            for row, local in by_row.items():
                traffic[row] -= local
            need = need + traffic * per_byte[self.kind]
        return np.asarray(need)

    def need(self, limit: table.Limit, step: int) -> Floats:
        """What a step would use on each row, streams to placed neighbours counted in."""
        reaches = self.reaches(step, ((e, 1.0) for e in (*self.problem.inputs[step], *self.problem.outputs[step])))
        return self._need(table.LIMITS.index(limit), step, self._bytes_hz(reaches))

    def room(self, limit: table.Limit) -> Floats:
        """What is left on each row's device."""
        c = table.LIMITS.index(limit)
        return np.asarray((self._limits.most - self._limits.idle)[c][self.kind] - self._used[c, : self.rows])

    def feasible(self, step: int) -> Flags:
        """The rows on which a step would break no constraint."""
        fits = np.ones(self.rows, bool)
        for _, satisfied in self.limits(step):
            fits &= satisfied
        return fits

    def cost(self, step: int, reaches: Sequence[Reach], own_weight: float = 1.0) -> Floats:
        """Seconds that a step would take on each row, and those of the given streams, weighted and summed."""
        cost = own_weight * self.step_time(step)
        for e, row, weight in reaches:
            hop = self.stream_time(e, row)
            cost = cost + (hop if weight == 1.0 else weight * hop)
        return cost

    def step_time(self, step: int) -> Floats:
        """Seconds in a step on each row; meaningless where it does not fit."""
        problem = self.problem
        service, load = problem.held_s[step][self.kind], problem.load[step][self.kind]
        if problem.model is Model.ROUND_ROBIN:
            return np.where(service == 0, 0.0, self._turn_s[: self.rows] + service)
        if problem.shares_processor:
            load = load + self.busy
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(service == 0, 0.0, service / (1 - load))

    def stream_time(self, e: int, row: int) -> Floats:
        """Seconds on a stream between the device of `row` and each row."""
        problem = self.problem
        if problem.hop_s is not None:
            hop = problem.hop_s[e][(self.zone != self._zone[row]).astype(np.int64)]
        else:
            access = problem.net.access_bps
            bits = problem.stream_bytes[e] * problem.bits_per_byte
            load = problem.stream_bps[e] if problem.model is not Model.ROUND_ROBIN else 0.0
            with np.errstate(divide="ignore", invalid="ignore"):
                sending = bits / (np.minimum(access, access[self._kind[row]]) - load)
            sending = np.where(bits == 0, 0.0, sending)
            latency = self.wan_row(int(self._zone[row]))[self.zone] + self._lan_s[row] + self.lan_s
            hop = sending[self.kind] + latency
        hop[row] = 0.0
        return np.asarray(hop)

    def wan_row(self, zone: int) -> Floats:
        """Latency from a zone to every zone."""
        if zone not in self._wan_rows:
            self._wan_rows[zone] = self.problem.net.wan.row(zone)
        return self._wan_rows[zone]

    def best(self, cost: Floats, fits: Flags) -> int | None:
        """The cheapest fitting row, among equals the lowest device number; None if nothing fits."""
        rows = np.flatnonzero(fits)
        if not len(rows):
            return None
        prices = cost[rows]
        cheapest = rows[prices == prices.min()]
        return int(cheapest[np.argmin(self._device[cheapest])])

    def put(self, step: int, row: int) -> None:
        """Place a step on a row's device and charge what it uses."""
        row = self.row(int(self._device[row]))
        self.at[step] = row
        self._charge(step, row, +1.0)

    def lift(self, step: int) -> None:
        """Take a placed step off the capacity."""
        row = int(self.at[step])
        self._charge(step, row, -1.0)
        self.at[step] = -1
        if self.problem.model is Model.ROUND_ROBIN:
            problem, kind = self.problem, self._kind[row]
            others = problem.taken.get(int(self._device[row]), NOTHING_TAKEN).fastest_hz
            rates = [problem.rate_hz[i] for i in np.flatnonzero(self.at == row) if problem.held_s[i, kind] > 0]
            self._fastest_hz[row] = max([others, *rates])

    def _charge(self, step: int, row: int, sign: float) -> None:
        problem, kind, limits = self.problem, self._kind[row], self._limits
        service = problem.held_s[step, kind]
        if service > 0:
            self._turn_s[row] += sign * service
            self._fastest_hz[row] = max(self._fastest_hz[row], problem.rate_hz[step])
        self._used[:, row] += sign * limits.step[:, step, kind]
        for e, other, _ in self.reaches(step, ((e, 1.0) for e in (*problem.inputs[step], *problem.outputs[step]))):
            if other != row:
                for end in (row, other):
                    self._used[:, end] += sign * problem.stream_bytes_hz[e] * limits.per_byte[:, self._kind[end]]
