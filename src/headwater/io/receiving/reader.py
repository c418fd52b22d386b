"""Reading the log of a source: a reader with positions for a source that has none which outlives it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.data.batch import Batch, concat_batches
from headwater.errors import InputError
from headwater.flow.endpoints import Reject, Source
from headwater.flow.steps import OnTheWay
from headwater.io.receiving.receiver import Receiver
from headwater.io.receiving.rounds import batches_of
from headwater.operators.operator import DEAD

Position = tuple[int, int]  #: an entry of the log, and how many of its records were handed out


class ReceivedReader:
    """Reads what a receiver has safe in its log, from a position on.

    What is committed is kept until the next commit: whoever finds his last note spoilt goes on from the one before. What the
    disk has damaged is a dead letter, and what is behind it is read.
    """

    def __init__(
        self,
        step: str,
        source: Source,
        folder: Path,
        reject: Reject,
        position: Any = None,
        way: Sequence[OnTheWay] = (),
    ) -> None:
        self._schema, self._reject, self._folder = source.schema, reject, folder
        self._receiver = Receiver(step, source, folder, until_idle=False, way=way)
        self._consumer = self._receiver.log.consumer("flow")
        self._waiting: deque[tuple[Position, Batch]] = deque()  # records that were read, and the position behind them
        self._ended = False
        #: of the record that comes next
        self.position: Position = (self._consumer.released, 0) if position is None else (position[0], position[1])
        self._committed = self.position
        self._skip = dict([self.position])  # of the entry that is read next: records that an earlier run handed out
        self._consumer.reader.seek(self.position[0])

    @property
    def dropped(self) -> int:
        """Messages that there was no room for."""
        return self._receiver.dropped

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return records that are safe in the log; none if nothing came in time."""
        if not self._waiting and not self._ended:
            self._fill(timeout_s)
        if not self._waiting:
            return None if self._ended else Batch.none(self._schema)
        batches: list[Batch] = []
        while self._waiting and limit > 0:
            behind, batch = self._waiting.popleft()
            if batch.length > limit:
                self._waiting.appendleft((behind, batch.slice(limit, batch.length)))
                entry, count = behind[0] - 1, _rows_before(self.position, behind) + limit
                self.position, batch = (entry, count), batch.slice(0, limit)
            else:
                self.position = behind
            limit -= batch.length
            batches.append(batch)
        return batches[0] if len(batches) == 1 else concat_batches(batches)

    def commit(self, position: Position) -> None:
        """Need nothing before the position that was committed before this one."""
        position_before, self._committed = self._committed, (position[0], position[1])
        self._consumer.release(position_before[0])

    def take_no_more(self) -> None:
        """Stop receiving, without waiting for it: senders hear at once that what is not safe is not taken."""
        self._receiver.stop()

    def close(self) -> None:
        """Stop receiving; what is in the log and was not handed out is there for the next run."""
        try:
            self._receiver.close()
        finally:
            self._consumer.close()

    def _fill(self, timeout_s: float) -> None:
        """Read entries that are safe, after waiting for one."""
        is_done = self._receiver.done  # asked first: what it has written last is safe when it says so
        entries = self._consumer.read()
        if not entries and not is_done:
            self._receiver.log.wait(self._consumer.position + 1, timeout_s)
            entries = self._consumer.read()
        is_damaged = self._check()
        for entry in entries:
            skip = self._skip.pop(entry.position, 0)
            records = []
            for port, batch in batches_of(entry.data):
                if port != DEAD:
                    records.append(batch)
                elif not skip:  # who was handed some of an entry was told what is no record in it
                    for letter in batch.rows():
                        self._reject(letter["record"], letter["error"])
            whole = concat_batches(records) if records else Batch.none(self._schema)
            self._waiting.append(((entry.position + 1, 0), whole.slice(skip, whole.length)))
        if is_damaged:  # so that what could not be read is behind the next run
            self._waiting.append(((self._consumer.position, 0), Batch.none(self._schema)))
        if not entries and is_done:
            if self._receiver.error is not None:
                raise self._receiver.error
            self._ended = True

    def _check(self) -> bool:
        """Set apart what cannot be read, and say whether there was something."""
        reader = self._consumer.reader
        is_damaged = bool(reader.troubles)
        while reader.troubles:  # its sender was told that it is safe, and does not send it again
            self._reject("", f"what was received is damaged: {reader.troubles.pop(0)}")
        if reader.skipped:
            raise InputError(
                f"the log in {self._folder} lacks entries from {self.position[0]} on; was the checkpoint copied in part?"
            )
        return is_damaged


def _rows_before(position: Position, behind: Position) -> int:
    """Return how many records of the entry that ends at a position were handed out already."""
    return position[1] if position[0] == behind[0] - 1 else 0
