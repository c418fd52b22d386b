"""Decides when a checkpoint is made, and when it is complete; there is no thread, clock or disk in here."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

#: After so long tasks that have not begun are told to save themselves at once, with what waits in their queues.
PATIENCE_S = 1.0
#: How soon the first one is due where somebody waits for it; each that follows takes twice as long, up to the usual time.
SOON_S = 0.01


class Coordinator:
    """One checkpoint at a time: numbered, asked of all tasks, complete when all have saved themselves.

    >>> c = Coordinator(tasks=2, first=0, every_s=5.0)
    >>> c.due(now_s=4.0), c.due(now_s=5.0), c.begin(5.0)
    (False, True, 0)
    >>> c.saved(0, 0, "a"), c.saved(1, 0, "b"), c.complete()
    (True, True, {0: 'a', 1: 'b'})
    """

    def __init__(self, tasks: int, first: int, every_s: float, now_s: float = 0.0, *, soon: bool = False) -> None:
        """`soon` is for a run that goes on and others wait for: see SOON_S."""
        self._tasks, self._next, self._every_s = tasks, first, every_s
        self._rest_s = min(SOON_S, every_s) if soon else every_s  #: until the next one
        self._due_s = now_s + self._rest_s
        self._began_s = 0.0
        self._urged = False
        self.number: int | None = None  #: the checkpoint that is being made
        self.waiting: set[int] = set()  #: the tasks that it waits for
        self._results: dict[int, Any] = {}

    def due(self, now_s: float) -> bool:
        """Say whether the next checkpoint should begin."""
        return self.number is None and now_s >= self._due_s

    def begin(self, now_s: float, number: int | None = None) -> int:
        """Begin a checkpoint, due or not; return its number. The next is due some time after this one began.

        Where another decides, it has the number that is given.
        """
        if self.number is not None:
            raise AssertionError(f"checkpoint {self.number} is not done with")
        self.number = self._next if number is None else number
        self._next = self.number + 1
        self.waiting, self._results = set(range(self._tasks)), {}
        self._rest_s = min(2 * self._rest_s, self._every_s)
        self._began_s, self._due_s, self._urged = now_s, now_s + self._rest_s, False
        return self.number

    def saved(self, task: int, number: int, result: Any) -> bool:
        """Take what a task has saved; return whether it belongs to the checkpoint that is being made."""
        if number != self.number or task not in self.waiting:
            return False
        self.waiting.remove(task)
        self._results[task] = result
        return True

    def urge(self, now_s: float) -> Iterable[int]:
        """Return the tasks that should save themselves at once, since their barriers take too long; once."""
        if self.number is None or self._urged or now_s < self._began_s + PATIENCE_S:
            return ()
        self._urged = True
        return sorted(self.waiting)

    def complete(self) -> dict[int, Any] | None:
        """Return what all tasks have saved, once they have; that checkpoint is then done with."""
        if self.number is None or self.waiting:
            return None
        self.number = None
        return self._results

    def hurry(self) -> None:
        """Have the next checkpoint due at once."""
        self._due_s = -inf

    def give_up(self) -> None:
        """Forget the checkpoint that is being made; the next is due when it would have been."""
        self.number, self.waiting = None, set()

    def rest_s(self, now_s: float) -> float:
        """Return how long nothing needs to be decided."""
        if self.number is None:
            return max(0.0, self._due_s - now_s)
        return max(0.0, self._began_s + PATIENCE_S - now_s) if not self._urged else PATIENCE_S
