"""Text files: what a kill left behind the last part that counts is cut off before going on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from headwater.data.batch import Batch
from headwater.flow.endpoints import Ledger, Refused, Writer
from headwater.io.lines import LineWriter
from headwater.io.transactions.cut_file import CutFile


class LinesWriter(Writer, Protocol):
    """An open file of lines."""

    file: LineWriter


class LineFile(CutFile):
    """A file of lines; readers see lines as they are written, also those that may be cut off again."""

    def __init__(self, path: str | Path, open_file: Callable[[bool], LinesWriter], ledger: Ledger) -> None:
        """Begin the file, or go on with it; `open_file` opens it, to append if its argument says so."""
        super().__init__(Path(path).absolute(), ledger)
        self._writer = open_file(not self._is_new)
        if self._is_new:
            self._note_begin()
        if not self.is_known:
            self._writer.file.before_first = self._foresee

    def write(self, batch: Batch) -> Refused | None:
        """Write records at the end."""
        self._changes()
        return self._writer.write(batch)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
        self._note_close()
