"""SQLite: a part and its number are written in one transaction, so that one is there exactly if the other is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headwater.data.batch import Batch
from headwater.errors import InputError
from headwater.flow.endpoints import CutTransaction, Ledger, Refused
from headwater.io.files import replace_whole
from headwater.io.sifting import without
from headwater.io.sqlite import SqliteWriter
from headwater.io.transactions.frames import packed_part, part_in

log = logging.getLogger(__name__)


class SqliteTable(CutTransaction):
    """A table in whose file another one says which part is its last.

    The rows of one part at a time are in the file's open transaction. While that part is prepared and not committed, rows
    that follow it are only tried, and wait; a prepared part is also kept as a file beside the checkpoint, since a
    transaction does not outlive its process.
    """

    def __init__(self, writer: SqliteWriter, ledger: Ledger) -> None:
        self._writer, self._ledger = writer, ledger
        self._prepared_parts: dict[int, list[Batch]] = {}
        self._part: list[Batch] = []  # what was written since the last part ended
        self._part_files: set[int] = set()  # the prepared parts that are files
        self._entered = False  # whether the oldest part that is not committed is in the open transaction
        self._committed = writer.begin(ledger.name)
        try:
            self._go_on()
        except BaseException:
            writer.close()
            raise

    @property
    def committed(self) -> int:
        """The last part that is in the table."""
        return self._committed

    def write(self, batch: Batch) -> Refused:
        """Write records; they are there when all of their part are."""
        self._enter()
        try:
            refusals = self._writer.try_insert(batch) if self._prepared_parts else self._writer.insert(batch)
        except BaseException:
            self._leave()
            raise
        self._part.append(without(batch, refusals))
        return refusals

    def cut(self, number: int) -> Callable[[], None]:
        """End the part here; its file is for later."""
        self._prepared_parts[number] = self._part
        self._part = []
        return partial(self._keep, number)

    def _keep(self, number: int) -> None:
        """Keep the parts up to this one as files: those before it whose checkpoints came to nothing are part of it."""
        for part, batches in list(self._prepared_parts.items()):
            if part <= number and part not in self._part_files:
                replace_whole(self._file(part), packed_part(batches))
                self._part_files.add(part)

    def commit(self, number: int) -> None:
        """Have the parts up to this one in the table, and its number with them."""
        is_prepared = number in self._prepared_parts
        if not is_prepared:
            self._prepared_parts[number] = self._part
            self._part = []
        due = [part for part in self._prepared_parts if part <= number]
        try:
            self._enter()
            for part in due[1:]:  # the first is in the transaction already
                self._insert(self._prepared_parts[part])
            self._writer.commit(self._ledger.name, number)
        except BaseException:
            if not is_prepared:
                self._part = self._prepared_parts.pop(number)
            self._leave()
            raise
        self._committed, self._entered = number, False
        if is_prepared:
            self._writer.make_safe()  # before the files that it was kept in are gone
        for part in due:
            del self._prepared_parts[part]
            self._part_files.discard(part)
            self._file(part).unlink(missing_ok=True)

    def rollback(self) -> None:
        """Forget what was written since the last part."""
        self._part = []
        if not self._prepared_parts:
            self._leave()

    def close(self) -> None:
        """Close the file; what is not committed is not in it."""
        self._writer.close()

    def _go_on(self) -> None:
        """Commit what was prepared up to the part after which the run goes on, and forget the rest."""
        after = self._committed if self._ledger.after is None else self._ledger.after
        files = {int(path.stem): path for path in self._ledger.folder.glob("*.rows")}
        if after < self._committed:
            if not self._writer.undo(self._ledger.name, after):
                raise InputError(
                    f"cannot go on after part {after}: the table has part {self._committed} already, and does not know "
                    "which rows came since. Bring back the last checkpoint from a copy, or begin anew with another "
                    "checkpoint and table"
                )
            log.warning("the rows after part %d come again: the table went back by one part to take them", after)
            self._committed = after
        if after > self._committed:
            if after not in files:
                raise InputError(
                    f"cannot go on after part {after}: it is neither in the table nor in {self._ledger.folder}; "
                    "was the database replaced, or the checkpoint copied in part?"
                )
            for part in sorted(part for part in files if self._committed < part <= after):
                self._insert(part_in(files[part]))
            self._writer.commit(self._ledger.name, after)
            self._writer.make_safe()
            self._committed = after
        for path in files.values():
            path.unlink()

    def _enter(self) -> None:
        """Have the oldest part that is not committed in the open transaction."""
        if not self._entered:
            try:
                self._writer.take_back()  # what a commit that failed has left open
                self._insert(next(iter(self._prepared_parts.values()), self._part))
            except BaseException:
                self._leave()
                raise
            self._entered = True

    def _leave(self) -> None:
        """Begin the transaction anew: SQLite takes it back as a whole on a full disk, at times of its choice."""
        self._entered = False
        self._writer.begin(self._ledger.name)

    def _insert(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.length:
                self._writer.insert(batch)

    def _file(self, part: int) -> Path:
        return self._ledger.folder / f"{part}.rows"
