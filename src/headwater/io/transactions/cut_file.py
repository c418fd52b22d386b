"""A file that only grows, and whose journal says how long it was after each part: what is behind the last can be cut off."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headwater.errors import InputError
from headwater.flow.endpoints import Ledger, Transaction
from headwater.io.files import explained, sync
from headwater.io.transactions.journal import Journal

log = logging.getLogger(__name__)


class CutFile(Transaction):
    """A sink that appends to a file; how it does so is its own business."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._journal = path, Journal.of(ledger)
        self._is_new = self._journal.is_new  # whether the file is to be begun
        if not self._is_new:
            self._keep_what_others_added()
            self.rollback()

    @property
    def committed(self) -> int:
        """The last part that is there."""
        return self._journal.committed

    @property
    def end(self) -> int:
        """Where the last part ended."""
        return int(self._journal.last or 0)

    def _begun(self) -> None:
        """Take note that the file is begun; it may have a head that belongs to no part."""
        self._journal.commit(-1, self._size())

    def prepare(self, number: int) -> None:
        """Take note that a part ends here, once what it wrote is safe."""
        self.cut(number)()

    def cut(self, number: int) -> Callable[[], None]:
        """End a part here; more may be behind it when it is safe."""
        return partial(self._note, number, self._size())

    def _note(self, number: int, end: int) -> None:
        self._sync()
        self._journal.prepare(number, end)

    def commit(self, number: int) -> None:
        """Take note that all parts up to this one count; one that was not prepared ends here."""
        if number not in self._journal.parts:
            self._sync()
        self._journal.commit(number, self._size())

    def rollback(self) -> None:
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

    def _closed(self) -> None:
        """Take note of how long the file is left, if all of it counts."""
        if self._path.exists() and self._size() == self.end:
            self._journal.close(self.end)

    def _keep_what_others_added(self) -> None:
        """Count in what was appended between two runs, such as dead letters that were replayed: it is not ours to cut."""
        closed = self._journal.closed
        if closed is None:
            return
        if closed == self.end and self._path.exists() and self._size() > closed:
            log.info("%s has %d bytes more than a run left there; they stay", self._path, self._size() - closed)
            self._journal.parts[max(self._journal.parts)] = self._size()
        self._journal.close(None)  # from now on what is behind the last part is ours, and may be cut off

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
