"""A file that only grows, and whose journal says how long it was after each part: what is behind the last can be cut off."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.errors import InputError
from headwater.flow.endpoints import Ledger
from headwater.io.files import explained
from headwater.io.transactions.journal import Journal


class CutFile:
    """The lengths of a file, by part; who has it appends to the file."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._journal = path, Journal.of(ledger)
        self.is_new = self._journal.is_new  #: whether the file is to be begun

    @property
    def committed(self) -> int:
        """The last part that is there."""
        return self._journal.committed

    @property
    def end(self) -> int:
        """Where the last part ended."""
        return int(self._journal.last or 0)

    def begin(self) -> None:
        """Take note that the file is begun; it may have a head that belongs to no part."""
        self._journal.commit(-1, self._size())
        self.is_new = False

    def prepare(self, number: int) -> None:
        """Take note that a part ends here."""
        self._journal.prepare(number, self._size())

    def commit(self, number: int) -> None:
        """Take note that all parts up to this one count; one that was not prepared ends here."""
        self._journal.commit(number, self._size())

    def cut(self) -> None:
        """Cut off what is behind the last part."""
        try:
            has, end = self._size(), self.end
            if has < end:
                raise InputError(
                    f"cannot go on writing {self._path}: it has {has:,} bytes, and the checkpoint knows of {end:,}; "
                    "was it replaced? Put it back, or begin anew with another checkpoint"
                )
            if has > end:
                os.truncate(self._path, end)
        except OSError as error:
            raise explained(error, self._path, "write") from error

    def _size(self) -> int:
        return self._path.stat().st_size
