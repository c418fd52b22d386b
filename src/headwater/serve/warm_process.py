"""Processes that have made their flows before they are to run, as the server sees them: each waits for its order.

Such a process has opened nothing of what its flow reads, writes or keeps, so that it can be ended at any moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal

from headwater.serve.child import Child, why_it_died
from headwater.serve.messages import Assignment, Statement, Warm
from headwater.serve.priority import gives_way, lower_priority, restore_priority

log = logging.getLogger(__name__)

#: warming: it is being made; warm: it waits; cold: there is none, and the flow is started without
Warmth = Literal["warming", "warm", "cold"]


class WarmProcess:
    """One such process; `on_change` is called, by another thread, when its warmth changes."""

    def __init__(self, name: str, task: Assignment, on_change: Callable[[], None]) -> None:
        self.warmth: Warmth = "warming"
        self.why = ""  #: it is cold
        self._on_change = on_change
        self._on_message: Callable[[Statement], None] = self._note
        self._on_hang_up: Callable[[], None] = self._note_end
        self._child = Child(name, task, lambda message: self._on_message(message), lambda: self._on_hang_up())
        lower_priority(self._child.pid)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def run(self, task: Assignment, on_message: Callable[[Statement], None], on_hang_up: Callable[[], None]) -> Child:
        """Have it run its flow; from now on it is a child like any other."""
        self._on_message, self._on_hang_up = on_message, on_hang_up
        if gives_way(self._child.pid):  # where this process was so slow that it was ready before it was told to
            restore_priority(self._child.pid)
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
            self._on_change()

    def _note_end(self) -> None:
        self.warmth = "cold"
        self._on_change()


class WarmPool:
    """All that wait, by the names of their flows."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._waiting: dict[str, WarmProcess] = {}
        self._lock = threading.Lock()

    def add(self, name: str, task: Assignment) -> None:
        """Start a process for a flow, unless there is one."""
        with self._lock:
            if name not in self._waiting:
                self._waiting[name] = WarmProcess(name, task, self._on_change)

    def warmth(self, name: str) -> Warmth:
        """Say how far the process of a flow is."""
        process = self._waiting.get(name)
        return "cold" if process is None else process.warmth

    def pid(self, name: str) -> int | None:
        """Return the process of a flow; None where there is none."""
        process = self._waiting.get(name)
        return None if process is None else process.pid

    def run(
        self, name: str, task: Assignment, on_message: Callable[[Statement], None], on_hang_up: Callable[[], None]
    ) -> Child | None:
        """Have the process of a flow run it; None where there is none that could."""
        process = self._take(name)
        if process is not None and process.warmth == "cold":
            process.end()
            return None
        return None if process is None else process.run(task, on_message, on_hang_up)

    def end(self, name: str) -> None:
        """End the process of a flow, if there is one."""
        process = self._take(name)
        if process is not None:
            process.end()

    def end_all(self) -> None:
        """End all."""
        for name in list(self._waiting):
            self.end(name)

    def _take(self, name: str) -> WarmProcess | None:
        with self._lock:
            return self._waiting.pop(name, None)
