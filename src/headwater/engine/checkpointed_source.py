"""What a checkpointer asks of a source at work: a barrier behind what it has handed over, and that its reader lets go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from headwater.operators.queue import Delivery
from headwater.operators.task import Task

if TYPE_CHECKING:
    from headwater.engine.checkpoint import Checkpointer


class CheckpointedSource(ABC):
    """How far a source has come, and what is asked of it: by any thread, but heeded by its own; see `engine.checkpoint`."""

    def __init__(self, task: Task, checkpointer: Checkpointer | None) -> None:
        self.task = task
        self.ended = False  #: nothing will follow what was handed over
        self.handed: Any = None  #: the reader's position behind the last records that were handed over, or shed
        self._checkpointer = checkpointer
        #: the last checkpoint for which a barrier was asked, and whether that is the final one; seen as one
        self._barrier_due = (-1, False)
        self._barrier_sent = -1  #: the last checkpoint for which one was sent
        self._positions: dict[int, Any] = {}  #: of checkpoints that are not complete
        self._to_commit = -1

    @abstractmethod
    def _send_barrier(self, deliveries: list[Delivery]) -> None:
        """Send a barrier on its way, behind all that was handed over."""

    @abstractmethod
    def _commit_reader(self, position: Any) -> None:
        """Let the reader know that all up to a position is safe; None if the position is not known any more."""

    def ask(self, number: int, *, final: bool) -> None:
        """Ask for a barrier, behind which nothing is handed over if it is the final one; called with the run's lock held.

        The source may hear of it before it hears that the run is stopping.
        """
        self._barrier_due = number, final

    def commit_later(self, number: int) -> None:
        """Have the reader learn, in its own thread, that all up to a checkpoint is safe."""
        self._to_commit = number

    def commit(self, number: int) -> None:
        """Let the reader know that all up to a checkpoint is safe; only for its thread, or when that is gone."""
        self._commit_reader(self._positions.get(number, self.handed if self.ended else None))
        self._positions = {at: position for at, position in self._positions.items() if at > number}

    def _heed_commit(self) -> None:
        """Let the reader know what is safe, if something is by now."""
        to_commit, self._to_commit = self._to_commit, -1
        if to_commit >= 0:
            self.commit(to_commit)

    def _is_barrier_due(self, *, final: bool) -> bool:
        """Say whether a barrier is asked for and not sent: the final one, or one that others will follow."""
        number, is_final = self._barrier_due
        return number > self._barrier_sent and is_final == final

    def _heed_barrier(self, *, at_end: bool = False) -> None:
        """Send the barrier that is asked for, if one is; the final one `at_end` alone, where nothing more is handed over.

        A step saves itself for the final one when it has come from all who send there: what came behind it from one of
        them would be in its state, and be read again.
        """
        number, is_final = self._barrier_due
        if number == self._barrier_sent or (is_final and not at_end):
            return
        self._positions[number] = self.handed
        if number - 2 in self._positions:  # however many came to nothing, none but the last two may be complete yet
            del self._positions[number - 2]
        self._send_barrier(self.task.barrier(number, last=is_final))
        self._barrier_sent = number
        assert self._checkpointer is not None
        self._checkpointer.saved_source(self.task.instance.index, number, self.handed)
