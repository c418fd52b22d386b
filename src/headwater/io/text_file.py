"""What all files of lines have in common, whatever is on a line: how they are read and written by runners."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError
from headwater.flow.endpoints import DeliverySemantics, Ledger, Resume, Transaction
from headwater.flow.identity import Identity, path_of
from headwater.flow.places import Place
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.files import check_writable, explained
from headwater.io.lines import Lines

if TYPE_CHECKING:
    from headwater.io.transactions.line_file import LinesWriter

_CHUNK = 2**20


class TextFile(ABC):
    """A file of lines that is read, a pipe, or with the path `-` standard input."""

    path: str | Path

    @abstractmethod
    def open(self, reject_or_schema: Any, position: Any = None, end: int | None = None) -> Any:
        """Start reading, from a position and up to a byte if they are given."""

    def counted(self, data: bytes) -> int:
        """Return how many lines some bytes hold, as readers count them; a last one needs no end."""
        return data.count(b"\n") + (not data.endswith(b"\n"))

    @property
    def resume(self) -> Resume:
        """Whether reading can go on where it was: what a pipe has given is gone."""
        return "position" if self._is_file() else "never"

    @property
    def identity(self) -> Identity:
        """Where it is; how much of it was read, and what that was, is in its offsets."""
        return {"path": path_of(self.path)}

    def claims(self, *, writing: bool) -> Place | None:
        """Return the file, or the standard stream, that it reads or writes; nothing is overwritten where nothing stays."""
        return None if str(self.path) == os.devnull else Place.of_stream(self.path, writing=writing)

    def check_read(self) -> None:
        """Raise what is wrong with the file; a pipe is left alone, since to look is to read."""
        if self._is_file():
            self.open(ignore).close()

    def ranges(self, request: RangeRequest) -> Ranges | None:
        """Return the file in ranges of bytes; a pipe has none."""
        from headwater.io.ranges.lines import LineRanges

        return LineRanges(self, request.sizes) if self._is_file() else None

    def _is_file(self) -> bool:
        """Tell a file from a pipe, which has no past; what is neither is told when it is opened."""
        try:
            mode = Path(self.path).stat().st_mode
        except OSError:
            return str(self.path) != "-"
        return str(self.path) != "-" and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    def __str__(self) -> str:
        return str(self.path)


class WritableTextFile(TextFile):
    """A file of lines that is written too: with a schema, `open` starts that."""

    def __init__(self, path: str | Path, schema: Fields | None, *, append: bool, follow: bool) -> None:
        if follow and str(path) == "-":
            raise FlowError("standard input is followed as it is; leave out follow")
        self.path, self.append, self.follow = path, append, follow
        self._schema = None if schema is None else Schema.of(schema)
        self._peeked: Lines | None = None  #: a pipe or standard input that the guess has read from

    @property
    def schema(self) -> Schema:
        """The columns, as given or as guessed from what the file begins with."""
        if self._schema is None:
            lines = Lines(self.path)
            self._schema = self._guess_schema(lines)
            if lines.once:
                self._peeked = lines
            else:
                lines.close()
        return self._schema

    @abstractmethod
    def _guess_schema(self, lines: Lines) -> Schema:
        """Guess the columns from the first lines, which are only looked at."""

    def check_place(self, in_parts: bool) -> None:
        """Raise what is wrong with where it writes."""
        if str(self.path) != "-":
            check_writable(self.path)

    @abstractmethod
    def appended(self, schema: Schema) -> LinesWriter:
        """Start writing at the end of what is there."""

    def rehearsed(self) -> Self:
        """Return what writes the same lines and leaves none behind."""
        there = copy(self)
        there.path, there.append = os.devnull, False
        return there

    @property
    def delivery(self) -> DeliverySemantics:
        """Whether what was written can be cut off again."""
        return "transactional" if self._is_file() else "neither"

    @property
    def sink_identity(self) -> Identity:
        """Where it is: the checkpoint alone says how much of it is good, and would cut another."""
        return self.identity

    @property
    def transaction(self) -> Callable[[Schema, Ledger], Transaction] | None:
        """How it is written in parts, after which a file can be cut; a pipe cannot."""
        return self._in_parts if self._is_file() else None

    def _in_parts(self, schema: Schema, ledger: Ledger) -> Transaction:
        from headwater.io.transactions.line_file import LineFile

        return LineFile(self.path, lambda more: self.appended(schema) if more else self.open(schema), ledger)


def content_of(path: Path, last: int | None = None) -> Identity:
    """Return the size of a file and a checksum of all of it, or of its last bytes."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if last is not None:
                file.seek(max(0, size - last))
            checksum = 0
            while data := file.read(_CHUNK):
                checksum = crc32(data, checksum)
    except OSError as error:
        raise explained(error, path, "read") from error
    return {"bytes": size, "content": checksum}


def ignore(text: str, error: str) -> None:
    """Leave what is no record to who reads it: looking for where records end is not reading."""
