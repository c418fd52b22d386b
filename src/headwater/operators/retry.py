"""Trying again: what a step with `retry` failed at goes back to the head of its queue, and nobody waits for it meanwhile."""

from __future__ import annotations

from headwater.data.batch import Batch
from headwater.flow.trouble import Retry
from headwater.operators.operator import Output


class PartlyError(Exception):
    """A step failed at one record (`row`) of a batch; `outputs` came of those before it. Raised under `retry`."""

    def __init__(self, cause: Exception, row: int, outputs: Output) -> None:
        super().__init__(str(cause))
        self.cause, self.row, self.outputs = cause, row, outputs


class RetryError(Exception):
    """`rest` of a batch is to be tried again after a pause; `outputs` came of the `count` records before it."""

    def __init__(self, rest: Batch, pause_ns: int, outputs: Output = None, count: int = 0) -> None:
        super().__init__("to be tried again")
        self.rest, self.pause_ns, self.outputs, self.count = rest, pause_ns, outputs, count


class Attempts:
    """How often, and since when, what is at the head of a step's queue has failed."""

    def __init__(self, policy: Retry) -> None:
        self.policy = policy
        self._failures = self._since_ns = 0

    def failed(self, now_ns: int) -> int | None:
        """Take note of a failure; return the pause before the next attempt in nanoseconds, None to give up."""
        if not self._failures:
            self._since_ns = now_ns
        self._failures += 1
        pause_us = self.policy.pause_us(self._failures, (now_ns - self._since_ns) // 1000)
        if pause_us is None:
            self.over()
            return None
        return pause_us * 1000

    def over(self) -> None:
        """Take note that it went well, or was given up: what comes next has not failed yet."""
        self._failures = 0
