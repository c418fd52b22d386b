"""Steps that do not come back: each is found once for the records that it is at."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from math import inf

from headwater.data.jit import being_compiled
from headwater.operators.task import Task

log = logging.getLogger(__name__)


class Hanging:
    """Looks, now and then, for how long each step has been at what it is at.

    While kernels are being compiled, and what runs may be a hundred times as slow, nothing hangs.
    """

    def __init__(self, hang_s: float) -> None:
        self._hang_s = hang_s
        self._last_seen: dict[Task, tuple[int, float]] = {}  #: the activation that each is at, and since when
        self._compiling_s = -inf  #: when a kernel was last seen being compiled
        self._warned_compiling: set[Task] = set()

    def look(self, tasks: Sequence[Task]) -> list[tuple[Task, str]]:
        """Return those that have been at it for too long, with words for that, once for each activation."""
        now, hanging = time.monotonic(), []
        if being_compiled():
            self._compiling_s = now
        for task in tasks:
            activation, since = self._last_seen.get(task, (-1, now))
            if task.in_hand is None or task.activation != activation:
                self._last_seen[task] = task.activation, now
                continue
            message = f"has been at the same {task.in_hand} records for {now - since:.3g} s"
            if now - since >= self._hang_s and self._compiling_s == now:
                if task not in self._warned_compiling:
                    self._warned_compiling.add(task)
                    log.warning("step %s %s: its kernels are still being compiled", task.name, message)
            elif now - max(since, self._compiling_s) >= self._hang_s:
                self._last_seen[task] = task.activation, inf
                hanging.append((task, message))
        return hanging
