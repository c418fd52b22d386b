"""Plays devices whose steps share the processor: all that is there goes on at once, each the slower the more there is.

Records may come back to a device that they have left, so no queue can be played from start to end by itself: this is a list
of events. On a shared processor each record gets the same part, so who ends next is decided by a clock of the device's own,
which runs by seconds over how many share them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headwater.sim.queues import Player

Record = tuple[int, float, float]
"""The step that a record is in, since when, and when it was created."""


class _Processor:
    """A device: what is on it, and its own clock."""

    def __init__(self) -> None:
        self.clock, self.seen_s, self.version = 0.0, 0.0, 0
        self._inside: list[tuple[float, int, Record]] = []

    def at(self, now_s: float) -> None:
        """Let the clock run up to a moment."""
        if self._inside:
            self.clock += (now_s - self.seen_s) / len(self._inside)
        self.seen_s = now_s
        self.version += 1

    def enter(self, work_s: float, number: int, record: Record) -> None:
        """Begin with a record."""
        heapq.heappush(self._inside, (self.clock + work_s, number, record))

    def leave(self) -> Record:
        """End the record that is done first."""
        self.clock, _, record = heapq.heappop(self._inside)
        return record

    def next_s(self) -> float | None:
        """When the first record is done if nobody else comes."""
        if not self._inside:
            return None
        return self.seen_s + (self._inside[0][0] - self.clock) * len(self._inside)


class Sharing:
    """One run of a placed flow on shared processors."""

    def __init__(self, player: Player) -> None:
        self._player, problem = player, player.problem
        self._problem = problem
        self._processors = {int(d): _Processor() for d in np.unique(player.device)}
        self._link_free_s = [0.0] * len(problem.stream_from)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        self._work: list[float] = [0.0] * len(problem.steps)
        self._visits: list[list[tuple[float, float, float]]] = [[] for _ in problem.steps]
        """Per step, of each record: when it came, when it left, when it was created."""

    def play(self) -> None:
        """Let records come, and events follow until none is left; then count."""
        for step in self._problem.sources:
            for moment in self._player.source(step).tolist():
                self._at(moment, lambda now, step=step: self._enter(step, now, now))  # type: ignore[misc]  # bound per round
        while self._events:
            now_s, _, act = heapq.heappop(self._events)
            act(now_s)
        for step in self._problem.order:
            rows = np.array(self._visits[step]).reshape(-1, 3)
            arrive, leave, created = rows[:, 0], rows[:, 1], rows[:, 2]
            self._player.count(
                step, len(rows), float((leave - arrive).sum()), self._work[step], float(leave.max(initial=0.0))
            )
            if not self._problem.outputs[step]:
                self._player.sink(step, leave, created)

    def _at(self, time_s: float, act: Callable[[float], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (time_s, self._number, act))

    def _enter(self, step: int, now_s: float, created_s: float) -> None:
        mean = float(self._player.mean_s[step])
        if mean == 0:
            self._leave((step, now_s, created_s), now_s)
            return
        work_s = float(self._player.durations(mean, 1)[0])
        self._work[step] += work_s
        self._number += 1
        device = int(self._player.device[step])
        processor = self._processors[device]
        processor.at(now_s)
        processor.enter(work_s, self._number, (step, now_s, created_s))
        self._await(device)

    def _await(self, device: int) -> None:
        """Come back when the next record is done; whoever comes before that makes this void."""
        processor = self._processors[device]
        due_s, version = processor.next_s(), processor.version
        if due_s is None:
            return

        def finish(now_s: float) -> None:
            if processor.version != version:
                return
            processor.at(now_s)
            record = processor.leave()
            self._await(device)
            self._leave(record, now_s)

        self._at(due_s, finish)

    def _leave(self, record: Record, now_s: float) -> None:
        step, arrive_s, created_s = record
        self._visits[step].append((arrive_s, now_s, created_s))
        for e, copies in self._player.route(step, 1):
            for _ in range(1 if copies is None else int(copies[0])):
                self._travel(e, now_s, created_s)

    def _travel(self, e: int, now_s: float, created_s: float) -> None:
        to, arrives_s = int(self._problem.stream_to[e]), now_s
        send_s = self._player.send_s(e)
        if send_s > 0:
            begins_s = max(now_s, self._link_free_s[e])
            arrives_s = self._link_free_s[e] = begins_s + float(self._player.durations(send_s, 1)[0])
        arrives_s += float(self._player.propagation_s[e])
        self._at(arrives_s, lambda now: self._enter(to, now, created_s))


def play(player: Player) -> None:
    """Play a run whose devices share their processors among their steps."""
    Sharing(player).play()
