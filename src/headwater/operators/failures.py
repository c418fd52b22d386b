"""What becomes of a batch that breaks a step: tried again, parted from the records at fault, set apart, or the run's end."""

from __future__ import annotations

import logging
import time

from headwater.data.batch import Batch
from headwater.errors import GoneError, InputError, NoRoomError, RecordError, RunError, one_line
from headwater.flow.steps import Step
from headwater.flow.trouble import Retry
from headwater.operators.counters import Counters
from headwater.operators.fault_isolation import as_list, error_text, without_the_broken
from headwater.operators.operator import DEAD, Operator, Output, dead_letters
from headwater.operators.retry import Attempts, PartlyError, RetryError
from headwater.operators.undo import undo_of

log = logging.getLogger(__name__)

_FULL_NS = 100_000_000  #: after which it is seen whether a disk that was full has room
_JUST_S = 1.0  #: many times that
_QUIET_S = 60.0  #: between two warnings that it has none


class ExitError(RunError):
    """A step wants the whole run to end: it called `sys.exit()`, was interrupted, or stops the run by its `on_error`."""


class Failures:
    """Deals with what breaks one instance of a step, as the step's `on_error` says."""

    def __init__(self, step: Step, operator: Operator | None) -> None:
        policy = step.on_error
        self._step, self._operator = step, operator
        self._undo = undo_of(step, operator)
        self.guarded = self._undo or operator  #: what to call: it can be taken back where that is possible
        self.attempts = Attempts(policy) if isinstance(policy, Retry) and operator is not None else None
        self.stops = (policy.then if isinstance(policy, Retry) else policy) == "stop"
        self._warned_s = -_QUIET_S
        self._full_s = -_QUIET_S  # when a sink last found a disk full

    @property
    def operator(self) -> Operator | None:
        """The operator as it is now: one that was taken back is another. A source has none."""
        return self._operator if self._undo is None else self._undo.operator

    @property
    def finds_no_room(self) -> bool:
        """Whether it is a sink that waits for room on a full disk: it has just tried."""
        return time.monotonic() - self._full_s < _JUST_S

    def restored(self) -> None:
        """Learn that the operator got its state from elsewhere: it is not taken back to before that."""
        if self._undo is not None:
            self._undo.keep()

    def handle(self, batch: Batch, port: int, error: Exception, counters: Counters) -> Output:
        """Set the records apart that break the step; all of them where it keeps state that cannot be taken back.

        Raises RetryError where the step's `retry` has them tried again first, and where a sink finds a disk full. A
        RecordError is not worth that: whatever is known to have no answer has none later.
        """
        guarded, operator = self.guarded, self._operator
        assert guarded is not None
        assert operator is not None
        if isinstance(error, GoneError):
            raise ExitError(f"sink {self._step.name!r} ended the run: {error}", step=self._step.name)
        if self.attempts is not None and not isinstance(error, RecordError):
            partly = error if isinstance(error, PartlyError) else PartlyError(error, 0, None)
            self._try_again(self.attempts, partly, batch, counters)
            if partly is error:
                return self._skip(batch, partly)
        elif self._step.is_sink and isinstance(error, NoRoomError) and not self.stops:
            self._wait_for_room(error, batch, counters)
        if self.stops:
            raise self.stopped(error_text(error))
        name, is_sink = self._step.name, self._step.is_sink
        if self._undo is not None or (operator.stateless and not is_sink):
            return without_the_broken(lambda part: guarded.process(part, port), batch, error, name)
        # what a sink raises as InputError it says of all records: halves would fare no better
        if operator.stateless and not isinstance(error, InputError):
            return without_the_broken(lambda part: guarded.process(part, port) or part, batch, error, name)
        why = error_text(error) if batch.length == 1 or is_sink else f"{error_text(error)}; {_WHOLE}"
        return [(DEAD, dead_letters(name, [why] * batch.length, batch))]

    def stopped(self, why: str) -> ExitError:
        """Return what to raise where `on_error` ends the run."""
        name = self._step.name
        return ExitError(f"step {name!r} stopped the run, as its on_error says: {why}", step=name)

    def _wait_for_room(self, error: NoRoomError, batch: Batch, counters: Counters) -> None:
        self._full_s = time.monotonic()
        if self._full_s - self._warned_s > _QUIET_S:
            self._warned_s = self._full_s
            log.warning("sink %s waits until there is room: %s", self._step.name, one_line(str(error)))
        counters.retries += 1
        raise RetryError(batch, _FULL_NS)

    def _try_again(self, attempts: Attempts, partly: PartlyError, batch: Batch, counters: Counters) -> None:
        if partly.row:
            attempts.over()  # those before went well, and this is another's first failure
        pause_ns = attempts.failed(time.perf_counter_ns())
        if pause_ns is not None:
            counters.retries += 1
            raise RetryError(batch.slice(partly.row, batch.length), pause_ns, partly.outputs, partly.row)

    def _skip(self, batch: Batch, partly: PartlyError) -> Output:
        """Give up one record, and go on with those behind it."""
        if self.stops:
            raise self.stopped(error_text(partly.cause))
        after = partly.row + 1
        letter = dead_letters(self._step.name, [error_text(partly.cause)], batch.slice(partly.row, after))
        outputs = [*as_list(partly.outputs), (DEAD, letter)]
        if after < batch.length:
            raise RetryError(batch.slice(after, batch.length), 0, outputs, after)
        return outputs


#: what a dead letter says of records that need not be at fault
_WHOLE = "its whole batch is set apart, since the step keeps state and has no snapshot and restore to take it back"
