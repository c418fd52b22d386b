"""One device at work in virtual time: the engine's own machine, queues, and a lock that is Python's.

A worker that begins an activation first holds the lock: it decides, takes and puts. Then it computes beside
the others. Records ride on through steps cheaper than a decision, as they do in the engine; what is left
goes into queues when the activation ends, and a queue near its bound holds the device's sources back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from headwater.engine.gate import HIGH, LOW
from headwater.engine.machine import Machine
from headwater.engine.policy import policy_named
from headwater.metrics import StepMetrics
from headwater.net.arrays import Floats
from headwater.place.problem import Problem
from headwater.sim.settings import EngineOptions

Parcel = tuple[int, Floats]
"""A stream, and when each of the records on it was born."""
Entry = tuple[Floats, float]
"""Records in a queue: when each was born, and when they were put there."""


class World(Protocol):
    """What a device sees of the rest of a run."""

    problem: Problem
    options: EngineOptions
    now: float
    random: np.random.Generator
    counts: list[StepMetrics]
    work_s: Floats
    """Per step, seconds per record where it is placed."""
    start_s: Floats
    """Per step, seconds per batch where it is placed."""

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Do something at a moment."""

    def made(self, step: int, born: Floats, at_s: float) -> list[Parcel]:
        """Return what a step makes of records, stream by stream; what a sink takes has arrived."""

    def travel(self, parcel: Parcel) -> None:
        """Send records to another device."""


class InTurn:
    """Serves whoever has been ready longest, as an operating system does with threads."""

    def pick(self, ready: dict[int, None], machine: Machine) -> int:
        """Return the first that became ready."""
        return next(iter(ready))


class Unlearned(Machine):
    """A machine that never learns what steps cost: nothing rides, and a turn is a turn."""

    def learn(self, instance: int, count: int, elapsed_ns: int) -> None:
        """Take no note."""


class Station:
    """A step on a device: its queue, and when it last had something to do."""

    def __init__(self, step: int, one_sender: bool) -> None:
        self.step, self.one_sender = step, one_sender
        self._entries: deque[Entry] = deque()
        self._finished_s = 0.0
        self._empty_since_s: float | None = 0.0

    def put(self, born: Floats, now_s: float, counts: StepMetrics) -> None:
        """Add records to the queue."""
        if self._empty_since_s is not None:
            counts.t_empty_ns += int((now_s - self._empty_since_s) * 1e9)
            self._empty_since_s = None
        self._entries.append((born, now_s))

    def take(self, count: int) -> list[Entry]:
        """Take records from the front; an entry that reaches further is cut."""
        taken = []
        while count:
            born, put_s = self._entries.popleft()
            if len(born) > count:
                self._entries.appendleft((born[count:], put_s))
                born = born[:count]
            taken.append((born, put_s))
            count -= len(born)
        return taken

    def head_ns(self) -> int:
        """Return when the record at the front was born, 0 when the queue is empty."""
        return int(self._entries[0][0][0] * 1e9) if self._entries else 0

    def began(self, entries: list[Entry], now_s: float, counts: StepMetrics) -> None:
        """Count how long records waited: behind others, then at the head for a worker."""
        for born, put_s in entries:
            head_s = max(self._finished_s, put_s)
            counts.t_q_ns += int((head_s - put_s) * len(born) * 1e9)
            counts.t_s_ns += int((now_s - head_s) * len(born) * 1e9)

    def worked(self, records: int, seconds: float, counts: StepMetrics) -> None:
        """Count a batch in."""
        counts.records_in += records
        counts.activations += 1
        counts.busy_ns += int(seconds * 1e9)
        counts.t_c_ns += int(seconds * records * 1e9)
        if self._empty_since_s is not None:  # the records rode: they were never in the queue
            counts.t_empty_ns -= int(seconds * 1e9)

    def finished(self, now_s: float) -> None:
        """Take note that an activation is over."""
        self._finished_s = now_s
        if not self._entries:
            self._empty_since_s = now_s

    def empty_ns(self, now_s: float) -> int:
        """Return how long there has been nothing to do by now, if so."""
        return 0 if self._empty_since_s is None else int((now_s - self._empty_since_s) * 1e9)


class Site:
    """A device: `receive` brings records, all else follows from events of its own making."""

    def __init__(self, world: World, steps: list[int], streams: set[int]) -> None:
        problem, options = world.problem, world.options
        self.world, self._streams = world, streams
        self._number = {step: i for i, step in enumerate(steps)}
        downstream = [
            [self._number[to] for e in problem.outputs[s] if (to := int(problem.stream_to[e])) in self._number]
            for s in steps
        ]
        limits = [options.queue_records] * len(steps)
        if options.runner == "threads":
            self.machine: Machine = Unlearned(downstream, InTurn(), options.take, limits)
        else:
            self.machine = Machine(downstream, policy_named(options.policy), options.take, limits)
        self._stations = [Station(step, len(problem.inputs[step]) == 1) for step in steps]
        self._running = 0
        self._lock_free_s = 0.0
        self._stalls: tuple[list[float], list[float]] = ([], [])
        if options.stalls is not None:
            begin, end = options.stalls.times_s(options.seconds, world.random)
            self._stalls = begin.tolist(), end.tolist()
        self._crowded: set[int] = set()
        self._held: list[Callable[[], None]] = []
        """What sources do that wait for room."""

    @property
    def has_room(self) -> bool:
        """Whether sources may hand over records."""
        return not self._crowded

    def when_room(self, act: Callable[[], None]) -> None:
        """Do something once no queue is near its bound."""
        self._held.append(act)

    def after(self, time_s: float, seconds: float) -> float:
        """Return when work that begins at a moment is done, stalls of the device counted in."""
        begin, end = self._stalls
        at = bisect_right(end, time_s)
        while at < len(begin) and begin[at] < time_s + seconds:
            seconds += end[at] - max(begin[at], time_s)
            at += 1
        return time_s + seconds

    def receive(self, step: int, born: Floats, *, from_source: bool = False) -> float:
        """Take records for a step, or from a source; return the seconds that the bringer is busy with them."""
        if step in self._number:
            self._put(step, born)
            spent_s = 0.0
        else:
            self.world.counts[step].records_in += len(born)
            made, spent_s = self._ridden(self.world.made(step, born, self.world.now), self.world.now)
            self._send(made)
        if from_source:
            spent_s += self._locked(self.world.options.costs.turn_s) - self.world.now
        self._wake()
        return spent_s

    def _locked(self, seconds: float) -> float:
        """Hold the lock for a while as soon as it is free; return until when."""
        self._lock_free_s = max(self._lock_free_s, self.world.now) + seconds
        return self._lock_free_s

    def _put(self, step: int, born: Floats) -> None:
        number = self._number[step]
        self._stations[number].put(born, self.world.now, self.world.counts[step])
        self.machine.arrived(number, len(born), int(born[0] * 1e9))
        if self.machine.waiting[number] >= HIGH * self.machine.limits[number]:
            self._crowded.add(number)

    def _send(self, parcels: list[Parcel]) -> None:
        for parcel in parcels:
            if parcel[0] in self._streams:
                self._put(int(self.world.problem.stream_to[parcel[0]]), parcel[1])
            else:
                self.world.travel(parcel)

    def _wake(self) -> None:
        while self._running < self.world.options.workers and (command := self.machine.next()) is not None:
            self._running += 1
            self._begin(*command)

    def _begin(self, number: int, count: int) -> None:
        """Let a worker take records, work through them, and carry on what needs no turn of its own."""
        station, world = self._stations[number], self.world
        entries = station.take(count)
        if number in self._crowded and self.machine.waiting[number] < LOW * self.machine.limits[number]:
            self._relieve(number)
        start_s = self._locked(world.options.costs.turn_s)
        station.began(entries, start_s, world.counts[station.step])
        taken = entries[0][0] if len(entries) == 1 else np.concatenate([born for born, _ in entries])

        def done() -> None:
            made = world.made(station.step, taken, world.now)
            out = sum(len(born) for _, born in made) // max(1, len(world.problem.outputs[station.step]))
            left, spent_s = self._ridden(made, world.now)
            world.at(self.after(world.now, spent_s), lambda: finish(left, out))

        def finish(left: list[Parcel], out: int) -> None:
            self._send(left)
            station.finished(world.now)
            elapsed_ns = int((world.now - start_s) * 1e9)
            self.machine.finished(number, count, elapsed_ns, out, station.head_ns())
            self._running -= 1
            self._wake()

        world.at(self.after(max(world.now, start_s), self._work(station, len(taken))), done)

    def _work(self, station: Station, records: int) -> float:
        """The seconds that a batch takes in a step, counted."""
        world, step = self.world, station.step
        compute_s = float(world.start_s[step] + records * world.work_s[step])
        seconds = compute_s + world.options.costs.ride_s
        station.worked(records, seconds, world.counts[step])
        return seconds

    def _ridden(self, parcels: list[Parcel], at_s: float) -> tuple[list[Parcel], float]:
        """Carry records on through steps that need no turn; return what is left for queues, and the seconds spent."""
        left, spent_s, problem = list[Parcel](), 0.0, self.world.problem
        for parcel in parcels:  # grows while we walk along it
            e, born = parcel
            step = int(problem.stream_to[e])
            number = self._number.get(step)
            if e not in self._streams or (number is not None and not self._may_ride(number)):
                left.append(parcel)
                continue
            if number is None:
                self.world.counts[step].records_in += len(born)
            else:
                seconds = self._work(self._stations[number], len(born))
                self.machine.learn(number, len(born), int(seconds * 1e9))
                spent_s += seconds
            parcels += self.world.made(step, born, at_s + spent_s)
        return left, spent_s

    def _may_ride(self, number: int) -> bool:
        return self._stations[number].one_sender and self.machine.may_ride(number)

    def close(self) -> None:
        """Count the time in which steps had nothing to do up to now."""
        for station in self._stations:
            self.world.counts[station.step].t_empty_ns += station.empty_ns(self.world.now)

    def _relieve(self, number: int) -> None:
        self._crowded.discard(number)
        if not self._crowded:
            held, self._held = self._held, []
            for act in held:
                self.world.at(self.world.now, act)
