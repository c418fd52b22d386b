"""The measures of a placement, counted once more: plain Python over the problem's own numbers.

The verifier's half of the arithmetic. It reads the fields that a problem was given, nothing worked out from them, and
shares no code with the scores, capacities and programs that it judges. Slow, and meant to be read beside the formulas.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from headwater.net.device import DeviceClass
from headwater.place.problem import TURN, Model, Problem


class Recount:
    """One placement: what each device and each stream bears, and how long records take."""

    def __init__(self, problem: Problem, device: Sequence[int]) -> None:
        net = problem.net
        self.problem, self.device = problem, list(device)
        starts = net.first.tolist()
        self.kind = [net.classes[int(net.class_of[d])] for d in device]
        self.zone = [bisect_right(starts, d) - 1 for d in device]
        self.hosts = sorted(set(self.device))
        self.streams = list(zip(problem.stream_from.tolist(), problem.stream_to.tolist(), strict=True))
        classes = [int(net.class_of[d]) for d in device]
        self.rate: list[float] = problem.rate_hz.tolist()
        self.work_s = [float(problem.service_s[i, k]) for i, k in enumerate(classes)]
        self.extra_s = [0.0] * len(classes)
        if problem.model is Model.ENGINE:
            self.extra_s = [float(problem.overhead_s[i, k]) for i, k in enumerate(classes)]
        self.charge = [float(problem.charge_mas[i, k]) for i, k in enumerate(classes)]
        self._on: dict[int, list[int]] = {host: [] for host in self.hosts}
        self._outside: dict[int, list[int]] = {host: [] for host in self.hosts}
        for i, host in enumerate(self.device):
            self._on[host].append(i)
        # worked out once: with a thousand steps on a device, asking all of them for each would take seconds
        self._busy: dict[int, float] = {}
        self._turn_s: dict[int, float] = {}
        self._in: list[list[int]] = [[] for _ in self.device]
        self._out: list[list[int]] = [[] for _ in self.device]
        for e, (a, b) in enumerate(self.streams):
            self._out[a].append(e)
            self._in[b].append(e)
            for host in {self.device[a], self.device[b]} if self.device[a] != self.device[b] else ():
                self._outside[host].append(e)

    def on(self, host: int) -> list[int]:
        """The steps on a device."""
        return self._on[host]

    def used_by_others(self, host: int, what: str) -> float:
        """What other flows use of a device."""
        return float(getattr(self.problem.taken[host], what)) if host in self.problem.taken else 0.0

    def busy_of(self, step: int) -> float:
        """The part of its processor that a step needs; on the engine, at least."""
        seconds = self.work_s[step] + self.extra_s[step] / TURN
        return self.rate[step] * seconds if seconds < float("inf") else float("inf")

    def busy(self, host: int) -> float:
        """How busy a device is."""
        if host not in self._busy:
            self._busy[host] = sum((self.busy_of(i) for i in self.on(host)), self.used_by_others(host, "utilisation"))
        return self._busy[host]

    def turn_s(self, host: int) -> float:
        """Seconds for one turn of all steps on a device."""
        if host not in self._turn_s:
            self._turn_s[host] = sum((self.work_s[i] for i in self.on(host)), self.used_by_others(host, "turn_s"))
        return self._turn_s[host]

    def fastest_hz(self, host: int) -> float:
        """Records per second of the busiest step on a device."""
        return max(
            [self.used_by_others(host, "fastest_hz"), *(self.rate[i] for i in self.on(host) if self.work_s[i] > 0)]
        )

    def bytes_hz(self, e: int) -> float:
        """Bytes per second of a stream."""
        return float(self.problem.stream_hz[e]) * float(self.problem.stream_bytes[e])

    def bps(self, e: int) -> float:
        """Bits per second of a stream."""
        return self.bytes_hz(e) * self.problem.bits_per_byte

    def outside(self, host: int) -> list[int]:
        """The streams that leave or enter a device."""
        return self._outside[host]

    def access_bps(self, host: int) -> float:
        """Bits per second on the access link of a device."""
        return sum((self.bps(e) for e in self.outside(host)), self.used_by_others(host, "access_bps"))

    def memory_bytes(self, host: int) -> float:
        """Bytes in use on a device."""
        loads = (float(self.problem.memory_bytes[i]) for i in self.on(host))
        return sum(loads, self.used_by_others(host, "memory_bytes"))

    def draw_ma(self, host: int) -> float:
        """Mean current of a device."""
        kind = self.kind_of(host)
        total = kind.idle_ma + self.used_by_others(host, "draw_ma")
        total += sum(self.rate[i] * self.charge[i] for i in self.on(host))
        return total + kind.radio_mas_per_byte * sum(self.bytes_hz(e) for e in self.outside(host))

    def kind_of(self, host: int) -> DeviceClass:
        """The class of a device that hosts a step."""
        return self.kind[self._on[host][0]]

    def step_s(self, step: int) -> float:
        """Seconds in a step, its window counted in."""
        host, alone = self.device[step], self.work_s[step] + self.extra_s[step]
        window = float(self.problem.window_s[step])
        if alone == 0:
            return window
        if self.problem.model is Model.ROUND_ROBIN:
            return window + self.turn_s(host)
        busy = self.busy_of(step) if self.problem.model is Model.QUEUE else self.busy(host)
        return window + alone / (1 - busy) if busy < 1 else float("inf")

    def latency_s(self, e: int) -> float:
        """Seconds that a stream's records are under way between two devices, sending left out."""
        problem, (a, b) = self.problem, self.streams[e]
        if self.device[a] == self.device[b]:
            return 0.0
        apart = self.zone[a] != self.zone[b]
        if problem.hop_s is not None:
            return float(problem.hop_s[e][1 if apart else 0])
        near = float(problem.net.lan_s[self.device[a]]) + float(problem.net.lan_s[self.device[b]])
        return near + (float(problem.net.wan.row(self.zone[a])[self.zone[b]]) if apart else 0.0)

    def stream_s(self, e: int) -> float:
        """Seconds on a stream."""
        problem, (a, b) = self.problem, self.streams[e]
        bits = float(problem.stream_bytes[e]) * problem.bits_per_byte
        if self.device[a] == self.device[b] or problem.hop_s is not None or bits == 0:
            return self.latency_s(e)
        speed = min(self.kind[a].access_bps, self.kind[b].access_bps)
        free = speed - (0.0 if problem.model is Model.ROUND_ROBIN else self.bps(e))
        return self.latency_s(e) + (bits / free if free > 0 else float("inf"))

    def measure(self, name: str) -> float:
        """One measure of the placement by name."""
        return float(getattr(self, "_" + name)())

    def _sequence(self) -> list[int]:
        """The steps, each after all that it reads."""
        missing = [0] * len(self.device)
        for _, b in self.streams:
            missing[b] += 1
        ready = [i for i, count in enumerate(missing) if not count]
        for step in ready:  # grows while we walk along it
            for e in self._out[step]:
                b = self.streams[e][1]
                missing[b] -= 1
                if not missing[b]:
                    ready.append(b)
        return ready

    def _critical(self) -> float:
        until = [0.0] * len(self.device)
        for step in self._sequence():
            arrivals = [until[self.streams[e][0]] + self.stream_s(e) for e in self._in[step]]
            until[step] = max(arrivals, default=0.0) + self.step_s(step)
        return max(until)

    def _aggregate(self) -> float:
        """All source-to-sink paths, each weighted by the shares of the copies on it; summed from the sinks on."""
        weight, seconds = [0.0] * len(self.device), [0.0] * len(self.device)
        for step in reversed(self._sequence()):
            out = [(e, self.streams[e][1]) for e in self._out[step]]
            onward = sum(weight[b] for _, b in out) if out else 1.0
            later = sum(seconds[b] + weight[b] * self.stream_s(e) for e, b in out)
            share = float(self.problem.share[step])
            weight[step], seconds[step] = share * onward, share * (later + onward * self.step_s(step))
        targets = {b for _, b in self.streams}
        return sum(seconds[step] for step in range(len(self.device)) if step not in targets)

    def _wan(self) -> float:
        return sum(self.bytes_hz(e) for e, (a, b) in enumerate(self.streams) if self.zone[a] != self.zone[b])

    def _energy(self) -> float:
        parts = [0.0]
        for host in self.hosts:
            limit, draw = self.kind_of(host).budget_ma, self.draw_ma(host)
            if draw > 0 and limit < float("inf"):
                parts.append(draw / limit if limit > 0 else float("inf"))
        return max(parts)

    def _money(self) -> float:
        rent = sum(self.kind_of(host).price_per_hour for host in self.hosts)
        for e, (a, b) in enumerate(self.streams):
            if self.zone[a] != self.zone[b]:
                rent += self.bytes_hz(e) * 3600 / 1e9 * self.kind[a].egress_per_gb
        return float(rent)

    def _devices(self) -> int:
        return len(self.hosts)
