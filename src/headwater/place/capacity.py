"""The capacity on which strategies put steps: what each device still has, and what a step would cost there.

Devices that host nothing are alike within their zone and class, except for their distance to the gateway.
So the capacity looks at one row per group, its nearest empty device, and one row per device in use. A net of
ten million devices in a thousand zones is a capacity of some thousand rows, and every question is answered by
arrays over those rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from headwater.net.arrays import Flags, Floats, Ints
from headwater.net.nearest import nearest
from headwater.place.problem import NOTHING_TAKEN, Model, Problem

SLACK = 1e-9
Reach = tuple[int, int, float]
"""A stream to a placed neighbour, that neighbour's row, and the weight of the stream's time."""


class Capacity:
    """A growing placement with all loads that it causes.

    Columns over rows: `device`, `zone`, `kind`, `lan_s` (which device a row stands for), and the loads
    `busy`, `memory`, `bps`, `draw`, `turn`, `fastest`. Rows below `groups` are the nearest empty of their
    group.
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
        self._lan_s, self._loads = np.zeros(room), np.zeros((6, room))
        self._usable = np.ones(room, bool)
        self._device[: self.groups], self._lan_s[: self.groups] = self._index.head, self._index.lan_s
        self._zone[: self.groups], self._kind[: self.groups] = self._index.zone, self._index.kind
        self._row_of: dict[int, int] = {}
        self._passed = np.zeros(self.groups, np.int64)
        self.at = np.full(len(problem.steps), -1)
        """The row of each placed step, −1 while it is not placed."""
        self._wan_rows: dict[int, Floats] = {}
        self._memory_limit = np.array([c.memory_bytes for c in net.classes])
        self._budget_ma = np.array([c.budget_ma - c.idle_ma for c in net.classes])
        self._radio = np.array([c.radio_mas_per_byte for c in net.classes])
        self._partner = {i: [j for j in group if j != i] for group in problem.together for i in group}
        for device, taken in problem.taken.items():
            row = self._touch(device)
            self._loads[:, row] = (
                taken.utilisation,
                taken.memory_bytes,
                taken.access_bps,
                taken.draw_ma,
                taken.turn_s,
                taken.fastest_hz,
            )
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
        return np.asarray(self._loads[0, : self.rows])

    @property
    def memory(self) -> Floats:
        """The bytes in use on each row's device."""
        return np.asarray(self._loads[1, : self.rows])

    def row(self, device: int) -> int:
        """The row of a device, which it gets if it has none yet."""
        return self._row_of[device] if device in self._row_of else self._touch(device)

    def placed(self) -> Ints:
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
        members, place = self._index.members(group), int(self._passed[group])
        while place < len(members) and int(members[place]) in self._row_of:
            place += 1
        self._passed[group] = place
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
        self._loads = np.concatenate([self._loads, np.zeros((6, more))], axis=1)
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

    def limits(self, step: int) -> Iterator[tuple[str, Flags]]:
        """Each constraint on a step with the rows that satisfy it, given all steps placed so far."""
        problem, kind = self.problem, self.kind
        busy, memory, _, draw, turn, fastest = self._loads[:, : self.rows]
        held = problem.held_s[step]
        rate = float(problem.rate_hz[step])
        yield "closed", self._usable[: self.rows]
        yield "class", np.isfinite(held)[kind]
        if problem.zone_allowed is not None:
            yield "zone", problem.zone_allowed[step][self.zone]
        if problem.pinned[step] >= 0:
            yield "pin", self.device == problem.pinned[step]
        for other in self._partner.get(step, ()):
            if self.at[other] >= 0:
                yield "together", self.device == self._device[self.at[other]]
        if held.any():
            takes = np.where(np.isfinite(held), problem.load[step], 0.0)[kind]
            yield "rate", takes < 1
            yield "cpu", busy + takes <= 1 + SLACK
            if problem.model is Model.ROUND_ROBIN:
                own = np.where(np.isfinite(held), held, 0.0)[kind]
                yield "turn", (own == 0) | (np.maximum(fastest, rate) * (turn + own) < 1)
        yield "memory", memory + problem.memory_bytes[step] <= self._memory_limit[kind] * (1 + SLACK)
        budget = self._budget_ma[kind]
        if np.isfinite(self._budget_ma).any():
            yield "energy", draw + rate * problem.charge_mas[step][kind] <= budget * (1 + SLACK)
        both = (*problem.inputs[step], *problem.outputs[step])
        yield from self._link_limits(self.reaches(step, ((e, 1.0) for e in both)))

    def _link_limits(self, reaches: Sequence[Reach]) -> Iterator[tuple[str, Flags]]:
        if not reaches:
            return
        problem, kind, bps = self.problem, self.kind, self._loads[2, : self.rows]
        access = problem.net.access_bps
        by_row: dict[int, float] = {}
        for e, row, _ in reaches:
            by_row[row] = by_row.get(row, 0.0) + float(problem.stream_bps[e])
            if problem.stream_bps[e] > 0:
                passes = problem.stream_bps[e] < np.minimum(access, access[self._kind[row]])
                fits = passes[kind]
                fits[row] = True
                yield "link", fits
            if problem.hop_s is None:
                reachable = np.isfinite(self.wan_row(int(self._zone[row])))[self.zone]
                yield "disconnected", reachable
        need = np.full(self.rows, sum(by_row.values()))
        for row, flow in by_row.items():
            need[row] -= flow
        yield "access", bps + need <= access[kind] * (1 + SLACK)
        for row, flow in by_row.items():
            if bps[row] + flow > access[self._kind[row]] * (1 + SLACK):
                alone = np.zeros(self.rows, bool)  # the neighbour's link is full: the step must join it
                alone[row] = True
                yield "access", alone
        if self._radio.any():
            yield from self._radio_limits(by_row)

    def _radio_limits(self, by_row: dict[int, float]) -> Iterator[tuple[str, Flags]]:
        draw, kind = self._loads[3, : self.rows], self.kind
        per_bit = self._radio / self.problem.bits_per_byte
        need = np.full(self.rows, sum(by_row.values()))
        for row, flow in by_row.items():
            need[row] -= flow
        yield "energy", draw + need * per_bit[kind] <= self._budget_ma[kind] * (1 + SLACK)
        for row, flow in by_row.items():
            own = self._kind[row]
            if draw[row] + flow * per_bit[own] > self._budget_ma[own] * (1 + SLACK):
                alone = np.zeros(self.rows, bool)
                alone[row] = True
                yield "energy", alone

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
        own, load = problem.held_s[step][self.kind], problem.load[step][self.kind]
        if problem.model is Model.ROUND_ROBIN:
            return np.where(own == 0, 0.0, self._loads[4, : self.rows] + own)
        if problem.shares_processor:
            load = load + self.busy
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(own == 0, 0.0, own / (1 - load))

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
            self._loads[5, row] = max([others, *rates])

    def _charge(self, step: int, row: int, sign: float) -> None:
        problem, kind, loads = self.problem, self._kind[row], self._loads
        held, rate = problem.held_s[step, kind], problem.rate_hz[step]
        if held > 0:
            loads[0, row] += sign * problem.load[step, kind]
            loads[4, row] += sign * held
            loads[5, row] = max(loads[5, row], rate)
        loads[1, row] += sign * problem.memory_bytes[step]
        loads[3, row] += sign * rate * problem.charge_mas[step, kind]
        for e, other, _ in self.reaches(step, ((e, 1.0) for e in (*problem.inputs[step], *problem.outputs[step]))):
            if other != row:
                for end in (row, other):
                    loads[2, end] += sign * problem.stream_bps[e]
                    loads[3, end] += (
                        sign * problem.stream_hz[e] * problem.stream_bytes[e] * self._radio[self._kind[end]]
                    )
