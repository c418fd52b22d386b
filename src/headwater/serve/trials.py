"""Processes that try queries. Each answers one question at a time and is kept for a while: its start is what takes long."""

from __future__ import annotations

import queue
import threading
from typing import Any

from headwater.errors import RunError
from headwater.serve.child import Child, why_it_died
from headwater.serve.messages import Answer, Assignment, Trial
from headwater.serve.settings import Settings

_AT_A_TIME = 2
_IDLE_S = 30.0  #: after which one that nobody asks is ended


class Trials:
    """Tries queries, whatever thread asks; who asks while all are at work waits for its turn."""

    def __init__(self, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._slots = threading.Semaphore(_AT_A_TIME)
        self._lock = threading.Lock()
        self._idle: list[_Trier] = []
        self._idle_timer: threading.Timer | None = None

    def answer(self, trial: Trial, within_s: float) -> bytes:
        """Return what came of a trial, as JSON; RunError says why nothing did."""
        with self._slots:
            trier = self._take()
            try:
                answer = trier.answer(trial, within_s)
            except BaseException:
                trier.close()
                raise
            self._keep(trier)
        if answer.why is not None:
            raise RunError(answer.why)
        return bytes(answer.result)

    def close(self) -> None:
        """End the idle processes."""
        with self._lock:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            idle, self._idle = self._idle, []
        for trier in idle:
            trier.close()

    def _take(self) -> _Trier:
        with self._lock:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            while self._idle:
                trier = self._idle.pop()
                if trier.lives:
                    return trier
                trier.close()
        return _Trier()

    def _keep(self, trier: _Trier) -> None:
        with self._lock:
            self._idle.append(trier)
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = threading.Timer(self._idle_s, self.close)
            self._idle_timer.daemon = True
            self._idle_timer.start()


class _Trier:
    """One process, started with its first question."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @property
    def lives(self) -> bool:
        """Whether it can be asked once more."""
        return self._child is not None and not self._child.hung_up and not self._child.ended

    def answer(self, trial: Trial, within_s: float) -> Answer:
        """Ask it; RunError where it ends, or takes too long: then it is to be closed."""
        task = Assignment("query", "", "", Settings(), trial=trial)
        if self._child is None:
            self._child = Child("query", task, self._messages.put, lambda: self._messages.put(None))
        else:
            self._child.tell(task)
        try:
            answer = self._messages.get(timeout=within_s)
        except queue.Empty:
            raise RunError(f"the query found no end within {within_s:g} s; ask for less") from None
        if not isinstance(answer, Answer):
            lines = self._child.lines
            raise RunError(f"the query could not be tried: {why_it_died(self.close(), lines)}")
        return answer

    def close(self) -> int:
        """End it, if that has not been done yet, and return its exit code."""
        child, self._child = self._child, None
        if child is None:
            return 0
        child.kill()
        return child.reap()
