"""A file that only grows, and whose journal says how long it was after each part: what is behind the last can be cut off."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar
from zlib import crc32

from headwater.errors import InputError
from headwater.flow.endpoints import CutTransaction, Ledger
from headwater.io.files import explained, sync
from headwater.io.transactions.journal import Journal

log = logging.getLogger(__name__)

_SUM_BYTES = 4096  # bytes at the head of a file, and before where a part ended, by which it is known
_FEW = 256  # bytes, with fewer than which another file could well begin: an empty one, or the header of a table
_FORESEEN = 64  # bytes of what is written behind those, by which it is known to be ours


class CutFile(CutTransaction):
    """A sink that appends to a file; how it does so is its own business.

    The journal says of a part where it ended, and a checksum by which a file that another has put in its place is told: it
    is refused, never cut. A copy of the file will do, whatever its inode. A file that holds next to nothing could be
    anybody's: what a run begins to write behind that is noted before it is written.
    """

    shared: ClassVar[bool] = True  #: whether it is in a place where others may put a file of theirs

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._journal = path, Journal.of(ledger)
        self._is_new = self._journal.is_new  # whether the file is to be begun
        if not self._is_new:
            self._check()  # before anything is noted or cut: a start that is refused must leave all as it was
            self._keep_what_others_added()
            self.rollback()

    @property
    def committed(self) -> int:
        """The last part that is there."""
        return self._journal.committed

    @property
    def end(self) -> int:
        """Where the last part ended."""
        return int(self._journal.last[0]) if self._journal.last else 0

    @property
    def is_known(self) -> bool:
        """Whether what is behind the last part can be told from what another wrote: by all that is before it."""
        return not self.shared or self.end >= _FEW

    def _foresee(self, data: bytes) -> None:
        """Take note of what is about to be written."""
        self._journal.foresee([self._size(), data[:_FORESEEN].hex()])

    def _note_begin(self) -> None:
        """Take note that the file is begun; it may have a head that belongs to no part."""
        self._journal.commit(-1, self._mark(self._size()))

    def _changes(self) -> None:
        """Take note, before a first record is written, that what is behind the last part is ours, and may be cut off."""
        if self._journal.closed is not None:
            self._journal.close(None)

    def cut(self, number: int) -> Callable[[], None]:
        """End a part here; more may be behind it when it is safe."""
        return partial(self._note, number, self._size())

    def _note(self, number: int, end: int) -> None:
        self._sync()
        self._journal.prepare(number, self._mark(end))

    def commit(self, number: int) -> None:
        """Take note that all parts up to this one count; one that was not prepared ends here."""
        if number in self._journal.parts:
            self._journal.commit(number)
        else:
            self._sync()
            self._journal.commit(number, self._mark(self._size()))

    def rollback(self) -> None:
        """Cut off what is behind the last part."""
        try:
            self._check()
            if self._size() > self.end:
                self._check_tail()
                os.truncate(self._path, self.end)
        except OSError as error:
            raise explained(error, self._path, "write") from error

    def _note_close(self) -> None:
        """Take note of how long the file is left, if all of it counts."""
        if self._path.exists() and self._size() == self.end:
            self._journal.close(self.end)

    def _keep_what_others_added(self) -> None:
        """Count in what was appended between two runs, such as dead letters that were replayed: it is not ours to cut."""
        if self._journal.closed == self.end and (has := self._size()) > self.end:
            log.info("%s has %d bytes more than a run left there; they stay", self._path, has - self.end)
            self._journal.parts[max(self._journal.parts)] = self._mark(has)

    def _check(self) -> None:
        """Raise InputError where the file is not the one that was written up to the last part."""
        if self._journal.last is not None and not _is_mark(self._journal.last):
            raise InputError(
                f"cannot go on writing {self._path}: the checkpoint notes {self._journal.last!r} of what was written, as "
                "another version of Headwater did, and not where it ended with a checksum. Go on with that version, or "
                "begin anew with another checkpoint and another file"
            )
        has, end = self._size(), self.end
        if has < end:
            raise InputError(
                f"cannot go on writing {self._path}: it has {has:,} bytes, and the checkpoint knows of {end:,}; "
                "was it replaced? Put it back, or begin anew with another checkpoint"
            )
        if self._journal.last and self._journal.last != self._mark(end):
            raise InputError(
                f"cannot go on writing {self._path}: its first {end:,} bytes are not those that runs with this checkpoint "
                "wrote; was it replaced, or does another flow write it too? Put it back, or begin anew with another "
                "checkpoint and another file"
            )

    def _check_tail(self) -> None:
        """Raise InputError where what is behind the last part is not what a run was about to write, or begins so."""
        if self.is_known:
            return
        at, data = self._journal.foreseen or (0, "")
        foreseen = bytes.fromhex(data)
        with self._path.open("rb") as file:
            file.seek(at)
            actual = file.read(len(foreseen))
        if not foreseen or not foreseen.startswith(actual):
            raise InputError(
                f"cannot go on writing {self._path}: runs with this checkpoint left {self.end:,} bytes there, and what is "
                "behind those is not theirs; does another program write the file too? Put that elsewhere, or begin anew "
                "with another checkpoint and another file"
            )

    def _mark(self, end: int) -> list[int]:
        """Return what is noted of a part that ended there: where, and a checksum of some bytes at the head and before it."""
        try:
            with self._path.open("rb") as file:
                head = file.read(min(end, _SUM_BYTES))
                file.seek(max(0, end - _SUM_BYTES))
                return [end, crc32(file.read(min(end, _SUM_BYTES)), crc32(head))]
        except OSError as error:
            raise explained(error, self._path, "read") from error

    def _sync(self) -> None:
        try:
            sync(self._path)
        except OSError as error:
            raise explained(error, self._path, "write") from error

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            raise InputError(
                f"cannot go on writing {self._path}: the file is gone, and the checkpoint knows of {self.end:,} bytes; "
                "put it back, or begin anew with another checkpoint"
            ) from None


def _is_mark(note: object) -> bool:
    return isinstance(note, list) and len(note) == 2 and all(isinstance(number, int) for number in note)
