"""Text files: what a kill left behind the last part that counts is cut off before going on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headwater.data.batch import Batch
from headwater.flow.endpoints import Ledger, Refused, Transaction, Writer
from headwater.io.transactions.cut_file import CutFile


class LineFile(Transaction):
    """A file of lines; readers see lines as they are written, also those that may be cut off again."""

    def __init__(self, path: str | Path, opened: Callable[[bool], Writer], ledger: Ledger) -> None:
        """Begin the file, or go on with it; `opened` opens it, to append if it is told so."""
        self._file = CutFile(Path(path).absolute(), ledger)
        if self._file.is_new:
            self._writer = opened(False)
            self._file.begin()
        else:
            self._file.cut()
            self._writer = opened(True)

    @property
    def committed(self) -> int:
        """The last part that is there."""
        return self._file.committed

    def write(self, batch: Batch) -> Refused | None:
        """Write records at the end."""
        return self._writer.write(batch)

    def prepare(self, number: int) -> None:
        """Note how long the file is."""
        self._file.prepare(number)

    def commit(self, number: int) -> None:
        """Note that it is good up to where the part ended."""
        self._file.commit(number)

    def rollback(self) -> None:
        """Cut off what was written since the last part."""
        self._file.cut()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
