"""Processes that have made their flows before they are to run, as the server sees them: each waits for the word.

Such a process has opened nothing of what its flow reads, writes or keeps, so that it can be ended at any moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal

from headwater.serve.child import Child, why_it_died
from headwater.serve.messages import Assignment, Statement, Warm
from headwater.serve.priority import lower_priority

log = logging.getLogger(__name__)

#: warming: it is being made; warm: it waits; cold: there is none, and the flow is started without
Warmth = Literal["warming", "warm", "cold"]


class WarmProcess:
    """One such process; `told` is called, by another thread, when it has become something else."""

    def __init__(self, name: str, task: Assignment, told: Callable[[], None]) -> None:
        self.warmth: Warmth = "warming"
        self.why = ""  #: it is cold
        self._told = told
        self._hear: Callable[[Statement], None] = self._note
        self._gone: Callable[[], None] = self._left
        self._child = Child(name, task, lambda said: self._hear(said), lambda: self._gone())
        lower_priority(self._child.pid)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def run(self, task: Assignment, hear: Callable[[Statement], None], gone: Callable[[], None]) -> Child:
        """Give it the word; from now on it is a child like any other."""
        self._hear, self._gone = hear, gone
        self._child.tell(task)
        return self._child

    def end(self) -> None:
        """End it."""
        was_cold = self.warmth == "cold"
        self._child.kill()
        code = self._child.reap()
        if was_cold:
            log.warning("%s: is started anew: %s", self._child.name, self.why or why_it_died(code, self._child.lines))

    def _note(self, message: Statement) -> None:
        if isinstance(message, Warm):
            self.warmth, self.why = ("warm", "") if message.why is None else ("cold", message.why)
            self._told()

    def _left(self) -> None:
        self.warmth = "cold"
        self._told()


class WarmPool:
    """All that wait, by the names of their flows."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._waiting: dict[str, WarmProcess] = {}
        self._lock = threading.Lock()

    def add(self, name: str, task: Assignment) -> None:
        """Start a process for a flow, unless there is one."""
        with self._lock:
            if name not in self._waiting:
                self._waiting[name] = WarmProcess(name, task, self._told)

    def warmth(self, name: str) -> Warmth:
        """Say how far the process of a flow is."""
        found = self._waiting.get(name)
        return "cold" if found is None else found.warmth

    def pid(self, name: str) -> int | None:
        """Return the process of a flow; None where there is none."""
        found = self._waiting.get(name)
        return None if found is None else found.pid

    def run(
        self, name: str, task: Assignment, hear: Callable[[Statement], None], gone: Callable[[], None]
    ) -> Child | None:
        """Have the process of a flow run it; None where there is none that could."""
        found = self._taken(name)
        if found is not None and found.warmth == "cold":
            found.end()
            return None
        return None if found is None else found.run(task, hear, gone)

    def end(self, name: str) -> None:
        """End the process of a flow, if there is one."""
        found = self._taken(name)
        if found is not None:
            found.end()

    def end_all(self) -> None:
        """End all."""
        for name in list(self._waiting):
            self.end(name)

    def _taken(self, name: str) -> WarmProcess | None:
        with self._lock:
            return self._waiting.pop(name, None)
