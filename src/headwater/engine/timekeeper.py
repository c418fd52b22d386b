"""What has to happen although no record comes: streams that are silent hold nobody back, windows close by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from headwater.data.batch import NO_WATERMARK
from headwater.flow.steps import EventTime, WindowAggregate
from headwater.flow.windows import Count, Session, by_processing_time
from headwater.operators.queue import FROM_CLOCK, Control, Delivery
from headwater.operators.task import Task

if TYPE_CHECKING:
    from headwater.engine.run import EngineRun
    from headwater.engine.source import SourceThread

_SHORTEST_S, _LONGEST_S = 0.005, 1.0  #: between two looks


@dataclass
class _Watched:
    """A step that reads event time, and all that could bring it records."""

    task: Task
    idle_s: float
    before: list[Task] = field(default_factory=list)
    sources: list[SourceThread] = field(default_factory=list)
    last_activation: int = -1  #: its last activation that was seen
    since_s: float = 0.0  #: since when nothing has come, and nothing is on its way
    on_busy: Callable[[float], None] | None = None  #: who is told while that is not so, in place of the task when it is

    def is_busy(self) -> bool:
        """Say whether a record has come since the last look, or is on its way."""
        last, self.last_activation = self.last_activation, self.task.activation
        waits = any(source.held for source in self.sources)
        return (
            last != self.last_activation
            or waits
            or any(each.queue.entries or each.in_hand is not None for each in self.before)
        )


class Timekeeper:
    """Tells tasks about the time, by a clock that nobody sets; its words come in line with the records.

    A stream counts as silent only if its sources have nothing to hand over: one that is held back, or is being tried again,
    is not idle.
    """

    def __init__(self, run: EngineRun) -> None:
        self._run = run
        self._watched: list[_Watched] = []
        self._ticking: list[Task] = []
        lengths = []
        for task in run.tasks:
            kind = task.instance.step.kind
            if isinstance(kind, EventTime) and kind.idle_us is not None:
                self._watched.append(self._watch(task, kind.idle_us / 1e6))
                lengths.append(kind.idle_us / 4e6)
            elif isinstance(kind, WindowAggregate) and by_processing_time(kind.window):
                self._ticking.append(task)
                assert not isinstance(kind.window, Count)
                length_us = kind.window.gap_us if isinstance(kind.window, Session) else kind.window.size_us
                lengths.append(length_us / 10e6)
        self.has_work = bool(lengths)
        self.every_s = min(max(_SHORTEST_S, min(lengths, default=_LONGEST_S)), _LONGEST_S)

    def loop(self) -> None:
        """Look again and again until the run is over."""
        while not self._run.done.wait(self.every_s):
            self.look(time.monotonic())

    def look(self, now_s: float) -> None:
        """Tell tasks what is to be told at a moment."""
        words: list[Delivery] = []
        for each in self._watched:
            if each.is_busy() or each.task.ended:
                each.since_s = now_s
                if each.on_busy is not None:
                    each.on_busy(now_s)
            elif now_s - each.since_s >= each.idle_s:
                each.since_s = now_s
                words.append(_word(each.task, "idle"))
        for task in self._ticking:
            if task.ticked and not task.ended:
                task.ticked = False
                words.append(_word(task, "tick"))
        if words:
            self._run.put_back(words)

    def tell_busy(self, task: Task, idle_s: float, on_busy: Callable[[float], None]) -> None:
        """Tell somebody, some four times in so long, while a task has something to do or something is on its way to it."""
        each = self._watch(task, inf)
        each.on_busy = on_busy
        self._watched.append(each)
        self.every_s = max(_SHORTEST_S, min(self.every_s, idle_s / 4))
        self.has_work = True

    def _watch(self, task: Task, idle_s: float) -> _Watched:
        graph = self._run.graph
        feeding = {task.instance.index}
        for index, targets in reversed(list(enumerate(graph.downstream()))):  # senders come before receivers
            if feeding.intersection(targets):
                feeding.add(index)
        before = [self._run.tasks[index] for index in feeding if self._run.tasks[index].operator is not None]
        sources = [source for source in self._run.sources if source.task.instance.index in feeding]
        return _Watched(task, idle_s, before, sources, since_s=time.monotonic())


def _word(task: Task, kind: str) -> Delivery:
    return Delivery(task.instance.index, 0, None, NO_WATERMARK, 1, Control(kind, FROM_CLOCK))  # type: ignore[arg-type]
