"""One device at work in virtual time: the engine's own scheduler, queues, and a lock that is Python's.

A worker that begins an activation first holds the lock: it decides, takes and puts. Then it computes beside the others.
What runs inline, who is held and how many are at it is the scheduler's to say, here as in the engine; steps that cost
nothing take no part in it: records pass them at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from headwater.engine.policy import policy_named
from headwater.engine.scheduler import Activation, Scheduler
from headwater.metrics import StepMetrics
from headwater.net.arrays import Floats
from headwater.place.problem import Problem
from headwater.sim.settings import EngineOptions

Transfer = tuple[int, Floats]
"""A stream, and when each of the records on it was created."""
QueuePart = tuple[Floats, float]
"""Records in a queue: when each was created, and when they were put there."""


class World(Protocol):
    """What a device sees of the rest of a run."""

    problem: Problem
    options: EngineOptions
    now: float
    stopping: bool
    """Whether sources should read no more."""
    random: np.random.Generator
    counts: list[StepMetrics]
    work_s: Floats
    """Per step, seconds per record where it is placed."""
    start_s: Floats
    """Per step, seconds per batch where it is placed."""

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Do something at a moment."""

    def outputs_of(self, step: int, created: Floats, at_s: float) -> list[Transfer]:
        """Return what a step makes of records, stream by stream; what a sink takes has arrived."""

    def travel(self, transfer: Transfer) -> None:
        """Send records to another device."""


class InTurn:
    """Serves whoever has been ready longest, as an operating system does with threads."""

    def pick(self, ready: Collection[int], scheduler: Scheduler) -> int:
        """Return the first that became ready."""
        return next(iter(ready))


class ThreadPerStep(Scheduler):
    """What becomes of a flow when every step has a thread: nobody runs inline, and as many are at it as there are cores."""

    def _reserve(self, sender: int, records: float, budget_ns: float, inline: list[int]) -> float:
        """Set nobody apart."""
        return budget_ns

    def _servable(self, now_ns: int) -> Collection[int]:
        """Return all that are ready if a core is free."""
        return self.ready if self.at_work < self.workers else ()


class StepQueue:
    """A step on a device: its queue, and when it last had something to do."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._entries: deque[QueuePart] = deque()
        self.records = 0
        """How many wait."""
        self._finished_s = 0.0
        self._empty_since_s: float | None = 0.0

    def put(self, created: Floats, now_s: float, counts: StepMetrics) -> None:
        """Add records to the queue."""
        if self._empty_since_s is not None:
            counts.t_empty_ns += int((now_s - self._empty_since_s) * 1e9)
            self._empty_since_s = None
        self._entries.append((created, now_s))
        self.records += len(created)

    def take(self, count: int) -> list[QueuePart]:
        """Take records from the front; an entry that reaches further is cut."""
        parts = []
        self.records -= count
        while count:
            created, put_s = self._entries.popleft()
            if len(created) > count:
                self._entries.appendleft((created[count:], put_s))
                created = created[:count]
            parts.append((created, put_s))
            count -= len(created)
        return parts

    def head_ns(self) -> int:
        """Return when the record at the front was created, 0 when the queue is empty."""
        return int(self._entries[0][0][0] * 1e9) if self._entries else 0

    def began(self, entries: list[QueuePart], now_s: float, counts: StepMetrics) -> None:
        """Count how long records waited: behind others, then at the head for a worker."""
        for created, put_s in entries:
            head_s = max(self._finished_s, put_s)
            counts.t_q_ns += int((head_s - put_s) * len(created) * 1e9)
            counts.t_s_ns += int((now_s - head_s) * len(created) * 1e9)

    def count_batch(self, records: int, seconds: float, counts: StepMetrics) -> None:
        """Count a batch in."""
        counts.records_in += records
        counts.activations += 1
        counts.busy_ns += int(seconds * 1e9)
        counts.t_c_ns += int(seconds * records * 1e9)
        if self._empty_since_s is not None:  # they ran inline, and were never in the queue
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
        #: steps that cost something have a queue; sources that do not are known to the scheduler all the same
        solid = [step for step in steps if problem.solid[step]]
        queued = [step for step in steps if not problem.solid[step] and not problem.inputs[step]] + solid
        self._number = {step: i for i, step in enumerate(queued)}
        senders = [0] * len(queued)
        downstream = []
        for step in queued:
            downstream.append([self._number[to] for to in self._queues_after(step, senders)])
        remote = [any(e not in streams for e in problem.inputs[step]) for step in queued]
        make = ThreadPerStep if options.runner == "threads" else Scheduler
        self.scheduler = make(
            downstream,
            InTurn() if options.runner == "threads" else policy_named(options.policy),
            take=options.take,
            workers=options.workers,
            limits=[options.queue_records] * len(queued),
            single=[n == 1 and not away for n, away in zip(senders, remote, strict=True)],
        )
        self._queues = [StepQueue(step) for step in queued]
        self._lock_free_s = 0.0
        self._stalls: tuple[list[float], list[float]] = ([], [])
        if options.stalls is not None:
            begin, end = options.stalls.times_s(options.seconds, world.random)
            self._stalls = begin.tolist(), end.tolist()
        self._blocked: dict[int, Callable[[], None]] = {}
        """What sources do that wait for room."""

    def _queues_after(self, step: int, senders: list[int]) -> list[int]:
        """Return the steps with a queue that a step's records come to, past those that cost nothing."""
        steps = []
        for e in self.world.problem.outputs[step]:
            to = int(self.world.problem.stream_to[e])
            if e in self._streams:
                if to in self._number:
                    senders[self._number[to]] += 1
                    steps.append(to)
                else:
                    steps += self._queues_after(to, senders)
        return steps

    def after(self, time_s: float, seconds: float) -> float:
        """Return when work that begins at a moment is done, stalls of the device counted in."""
        begin, end = self._stalls
        at = bisect_right(end, time_s)
        while at < len(begin) and begin[at] < time_s + seconds:
            seconds += end[at] - max(begin[at], time_s)
            at += 1
        return time_s + seconds

    def receive(self, step: int, created: Floats) -> None:
        """Take records that came from another device."""
        self.world.counts[step].in_hand -= len(created)
        self._send(self._pass(step, created))
        self._wake()

    def emit(self, source: int, created: Floats, again: Callable[[], None]) -> float | None:
        """Take records from a source; return the seconds that it is busy with them, None to `again` once there is room."""
        world, number = self.world, self._number[source]
        activation = self.scheduler.admit(number, len(created), self._now_ns())
        if activation is None:
            self._blocked[number] = again
            return None
        if world.problem.solid[source]:
            transfers, spent_s = list[Transfer](), 0.0
            self._put(source, created)
        else:
            transfers, spent_s = self._run_inline(activation, self._pass(source, created))

        def finish() -> None:
            self._carry(transfers, -1)
            self._send(transfers)
            self.scheduler.finished(activation)
            self._wake()

        self._carry(transfers, +1)
        if spent_s:
            world.at(self.after(world.now, spent_s), finish)
        else:
            finish()
        return spent_s + self._hold_lock(world.options.costs.activation_s) - world.now

    def _now_ns(self) -> int:
        return int(self.world.now * 1e9)

    def _hold_lock(self, seconds: float) -> float:
        """Hold the lock for a while as soon as it is free; return until when."""
        self._lock_free_s = max(self._lock_free_s, self.world.now) + seconds
        return self._lock_free_s

    def _put(self, step: int, created: Floats) -> None:
        number = self._number[step]
        self._queues[number].put(created, self.world.now, self.world.counts[step])
        self.scheduler.arrived(number, len(created), int(created[0] * 1e9))

    def _send(self, transfers: list[Transfer]) -> None:
        for e, created in transfers:
            if e not in self._streams:
                self.world.travel((e, created))
                continue
            step = int(self.world.problem.stream_to[e])
            if step in self._number:
                self._put(step, created)
            else:
                self._send(self._pass(step, created))

    def _pass(self, step: int, created: Floats) -> list[Transfer]:
        """Let records pass a step that costs nothing; one that does has them in its queue."""
        if self.world.problem.solid[step]:
            self._put(step, created)
            return []
        self.world.counts[step].records_in += len(created)
        return self.world.outputs_of(step, created, self.world.now)

    def _wake(self) -> None:
        while (activation := self.scheduler.next(self._now_ns())) is not None:
            self._begin(activation)
        for number in [each for each in self._blocked if each not in self.scheduler.throttle.held]:
            self.world.at(self.world.now, self._blocked.pop(number))

    def _begin(self, activation: Activation) -> None:
        """Let a worker take records, work through them, and carry on what needs no activation of its own."""
        queue, world = self._queues[activation.instance], self.world
        entries = queue.take(activation.records)
        start_s = self._hold_lock(world.options.costs.activation_s)
        queue.began(entries, start_s, world.counts[queue.step])
        batch = entries[0][0] if len(entries) == 1 else np.concatenate([created for created, _ in entries])
        seconds = self._seconds(queue.step, len(batch))
        world.counts[queue.step].in_hand += len(batch)

        def compute_done() -> None:
            world.counts[queue.step].in_hand -= len(batch)
            queue.count_batch(len(batch), seconds, world.counts[queue.step])
            outputs = world.outputs_of(queue.step, batch, world.now)
            out = sum(len(created) for _, created in outputs) // max(1, len(world.problem.outputs[queue.step]))
            remaining, spent_s = self._run_inline(activation, outputs)
            self._carry(remaining, +1)
            world.at(self.after(world.now, spent_s), lambda: finish(remaining, out))

        def finish(remaining: list[Transfer], out: int) -> None:
            self._carry(remaining, -1)
            self._send(remaining)
            queue.finished(world.now)
            self.scheduler.finished(activation, int(seconds * 1e9), out, queue.head_ns())
            self._wake()

        world.at(self.after(max(world.now, start_s), seconds), compute_done)

    def _seconds(self, step: int, records: int) -> float:
        """The seconds that a batch takes in a step."""
        world = self.world
        return float(world.start_s[step] + records * world.work_s[step]) + world.options.costs.inline_s

    def _carry(self, transfers: list[Transfer], sign: int) -> None:
        """Count records as on their way to the queues they are for, or as there."""
        for e, created in transfers:
            self.world.counts[int(self.world.problem.stream_to[e])].in_hand += sign * len(created)

    def _run_inline(self, activation: Activation, transfers: list[Transfer]) -> tuple[list[Transfer], float]:
        """Carry records on through the steps set apart for it; return what is left for queues, and the seconds spent."""
        remaining, spent_s, problem = list[Transfer](), 0.0, self.world.problem
        for transfer in transfers:  # grows while we walk along it
            e, created = transfer
            step = int(problem.stream_to[e])
            number = self._number.get(step)
            if e not in self._streams or (number is not None and number not in activation.inline):
                remaining.append(transfer)
                continue
            if number is None:
                self.world.counts[step].records_in += len(created)
            else:
                seconds = self._seconds(step, len(created))
                self._queues[number].count_batch(len(created), seconds, self.world.counts[step])
                self.scheduler.learn(number, len(created), int(seconds * 1e9))
                spent_s += seconds
            transfers += self.world.outputs_of(step, created, self.world.now + spent_s)
        return remaining, spent_s

    def metrics(self) -> Iterator[StepMetrics]:
        """The counts of steps that cost something, up to now: with what waits, and the time with nothing to do."""
        now_s = self.world.now
        for queue in self._queues:
            counts = self.world.counts[queue.step]
            yield replace(counts, queue=queue.records, t_empty_ns=counts.t_empty_ns + queue.empty_ns(now_s))
