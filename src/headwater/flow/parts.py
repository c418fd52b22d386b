"""Sinks that are written in parts: those with numbers, those that other processes write, and those that are prepared first.

A sink says that it has parts by `transaction(schema, ledger)` (`headwater.flow.endpoints`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headwater.data.batch import Batch
    from headwater.flow.endpoints import Refused


class Staging(Protocol):
    """Writes records out of sight, in whichever process they are; who owns the sink lets them appear."""

    def write(self, batch: Batch) -> tuple[bytes, Batch, Refused]:
        """Write the records that can be; return what `StagedWriter.stage` needs to know of them, and why others cannot."""


class NumberedWriter(ABC):
    """An open sink that is written in parts with growing numbers, such as Spark's micro-batches.

    Who can bring the same records again after a stop asks for `committed`, and writes the parts after it.
    """

    @property
    @abstractmethod
    def committed(self) -> int:
        """The last part that is there, -1 before the first."""

    @abstractmethod
    def write(self, batch: Batch) -> Refused | None:
        """Write records of the part that is next, as a `Writer` does."""

    @abstractmethod
    def commit(self, number: int) -> None:
        """Let all parts up to this one be there; the one that is being written ends here, unless it was prepared."""

    @abstractmethod
    def rollback(self) -> None:
        """Forget what was written since the last part ended: another attempt follows."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is committed and release what was opened."""


class StagedWriter(NumberedWriter):
    """One whose records other processes may write, too."""

    staging: Staging  #: how they do

    @abstractmethod
    def stage(self, note: bytes) -> None:
        """Take what a staging said of records that it has written: they are of the part that is next."""


class Transaction(NumberedWriter):
    """Parts that are prepared first, such as what came between two checkpoints, and there when all agree that they are.

    `prepare(7)` ends part 7, records after it are of the next. From then on the part outlives the process, and it depends
    on where the next run goes on (`Ledger.after`) whether it is there or gone; `commit(7)` has it there at once.
    """

    @abstractmethod
    def prepare(self, number: int) -> None:
        """End the part that is being written, and have it safe under this number."""

    def cut(self, number: int) -> Callable[[], None]:
        """End the part that is being written, and return what has it safe, so that nobody who writes waits for a disk.

        Another thread calls that, once, while records of the next part are written. It may never be called, where the
        checkpoint came to nothing: then the part after it holds these records too. Who cannot do it does all at once.
        """
        self.prepare(number)
        return _nothing_left


def _nothing_left() -> None:
    """A part is safe already."""


class CutTransaction(Transaction):
    """One that ends a part at once and has it safe later; who prepares does both."""

    @abstractmethod
    def cut(self, number: int) -> Callable[[], None]:
        """End the part that is being written, and return what has it safe."""

    def prepare(self, number: int) -> None:
        """End the part that is being written, and have it safe under this number."""
        self.cut(number)()


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where a sink notes what it has written, and after which part a run goes on."""

    folder: Path  #: for its notes alone, beside the checkpoint
    name: str  #: tells its parts from others' in a table that many write: letters, digits and `-`
    #: the last part that counts: what was prepared up to it is there, what came after it is gone. None, for who never
    #: prepares, is the last that was committed
    after: int | None = None
    #: tell whether a part, or an entry of a log, may be delivered by now, or others have to deliver theirs first: writers of
    #: runs before, by whom a key's records came then
    is_turn_of_part: Callable[[int], bool] = lambda number: True
    is_turn_of_entry: Callable[[int], bool] = lambda position: True
