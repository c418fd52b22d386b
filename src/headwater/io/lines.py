"""Text files and pipes, read and written by lines; the path `-` is standard input or output."""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
from collections.abc import Callable
from errno import EISDIR
from pathlib import Path
from sys import maxsize
from typing import Any
from zlib import crc32

from headwater.errors import InputError
from headwater.io.files import explained, hold, write_all

_CHUNK = 2**18
_RANGE_CHUNK = 2**22  # who reads a range wants all of it, in few large batches
_PEEKED = 2**22  # bytes to look at before reading
_LONGEST = 2**24  # a line beyond this is no text: an archive, an image
_BOM = b"\xef\xbb\xbf"
_PACKERS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}  # what files begin with that they pack
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_KNOWN_BY = 1024  # bytes at the beginning, and before where reading goes on, by which a file is known again


log = logging.getLogger(__name__)


class Lines:
    """An open text file or pipe; hands out lines without their ends and knows how far it is.

    With `end`, a number of bytes, it is read as if it ended there.
    """

    def __init__(self, path: str | Path, position: Any = None, end: int | None = None) -> None:
        self._path = path
        self.offset, self.line, checksum = parse_position(position, path)  #: bytes and lines handed out
        self._ready: list[bytes] = []
        self._at = 0  # the line of `_ready` that is next
        self._rest = b""
        self._ended = False
        self._half = False  # whether the last of `_ready` has no end
        self.whole = False  #: whether a last line without an end is left for who reads on later: it may be half written
        try:
            self._fd = sys.stdin.fileno() if str(path) == "-" else os.open(path, os.O_RDONLY)
            kind = os.fstat(self._fd)
            if stat.S_ISDIR(kind.st_mode):  # which can be opened, and not read
                os.close(self._fd)
                raise IsADirectoryError(EISDIR, "")
        except OSError as error:
            raise explained(error, path, "read") from error
        self._waits = not stat.S_ISREG(kind.st_mode)  # a pipe may have nothing for now
        self._unbegun = self.offset == 0
        if self.offset:
            self._skip(kind.st_size, checksum)
        self._remaining = maxsize if end is None else max(0, end - self.offset)  # bytes still to be read
        self._chunk = _CHUNK if end is None else _RANGE_CHUNK

    @property
    def position(self) -> list[int]:
        """Where the next line starts."""
        return self.position_at(self.offset, self.line)

    def position_at(self, offset: int, line: int) -> list[int]:
        """Return the place behind so many bytes and lines, with a checksum of what a reader must find there again."""
        return [offset, line] if self._waits or self._fd < 0 else [offset, line, checksum_before(self._fd, offset)]

    @property
    def once(self) -> bool:
        """Whether what was read cannot be read again by opening it anew."""
        return self._waits or str(self._path) == "-"

    def take(self, limit: int, timeout_s: float) -> list[bytes] | None:
        """Return up to `limit` lines, none if none came in time, None after the last one."""
        if self._at == len(self._ready) and not self._fill(timeout_s):
            return None if self._ended else []
        lines = self._ready[self._at : self._at + limit]
        self._at += len(lines)
        if self.whole and self._half and self._at == len(self._ready):
            log.warning("the last line of %s has no end yet: it is read when it has one", self._path)
            lines.pop()
        self.line += len(lines)
        self.offset += sum(map(len, lines)) + len(lines)
        return lines

    def peek(self, limit: int, least: int = 1) -> list[bytes]:
        """Return the first lines, which stay to be taken: up to `limit` of a file, of a pipe `least` and what is there."""
        lines = self._ready
        while len(lines) < limit and not (len(lines) >= least and self._is_enough(lines)) and self._fill(3600):
            lines = self._ready = lines + self._ready
        return lines[:limit]

    def _is_enough(self, lines: list[bytes]) -> bool:
        """Say whether to stop peeking: a pipe may bring no more for now, and long lines would fill the memory."""
        return self._waits or sum(map(len, lines)) > _PEEKED

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._fd >= 0 and str(self._path) != "-":
            os.close(self._fd)
        self._fd = -1

    def _fill(self, timeout_s: float) -> bool:
        """Read on until there is a whole line; tell whether there is one."""
        while not self._ended:
            if self._waits and not select.select([self._fd], [], [], timeout_s)[0]:
                return False
            lines = self._read().split(b"\n")
            self._rest = b"" if self._ended else lines.pop()
            if len(self._rest) > _LONGEST:
                ahead = len(self._ready) - self._at + len(lines)  # read, and not yet taken
                raise InputError(
                    f"cannot read {self._path}: line {self.line + ahead + 1} has no end within {_LONGEST:,} bytes; "
                    "is it a text file?"
                )
            if lines and lines != [b""]:
                self._ready, self._at = lines, 0
                self._half = self._ended
                return True
        return False

    def _read(self) -> bytes:
        try:
            data = os.read(self._fd, min(self._chunk, self._remaining))
        except OSError as error:
            self.close()
            raise explained(error, self._path, "read") from error
        self._remaining -= len(data)
        if self._unbegun:
            self._unbegun = False
            self._refuse_what_is_no_text(data)
            if data.startswith(_BOM):
                data, self.offset = data[len(_BOM) :], len(_BOM)
        self._ended = not data
        return self._rest + data

    def _refuse_what_is_no_text(self, data: bytes) -> None:
        """Raise InputError if a file begins as none in UTF-8 does: its lines would be rejected, or be a header."""
        packers = (packer for magic, packer in _PACKERS.items() if data.startswith(magic))
        why = next((f"it is packed; unpack it first ({packer} -d)" for packer in packers), "")
        if data.startswith(_UTF_16) and b"\0" in data[:64]:
            why = "it is text in UTF-16; write it in UTF-8 (iconv -f UTF-16 -t UTF-8)"
        if why:
            self.close()
            raise InputError(f"cannot read {self._path}: {why}")

    def _skip(self, size: int, checksum: int | None) -> None:
        if self._waits:
            raise InputError(f"cannot read {self._path} from where it was left: a pipe has no past")
        if self.offset > size + 1:  # one more than its size: the last line had no end
            raise InputError(
                f"cannot read {self._path} from byte {self.offset:,}: it has {size:,}; was the file replaced?"
            )
        if checksum is not None and checksum != checksum_before(self._fd, self.offset):
            raise InputError(
                f"cannot read {self._path} from byte {self.offset:,}: it is not the file that was read up to there; was it "
                "replaced or edited? Begin anew without the checkpoint, or read the new file under a name of its own"
            )
        os.lseek(self._fd, self.offset, os.SEEK_SET)


class LineWriter:
    """An open text file that takes whole lines; each call is on disk, or at the reader of a pipe, at once."""

    def __init__(self, path: str | Path, *, append: bool) -> None:
        self._path = path
        try:
            self._fd = sys.stdout.fileno() if str(path) == "-" else _open_locked(path, append=append)
        except OSError as error:
            raise explained(error, path, "write") from error
        self.empty = not append or os.fstat(self._fd).st_size == 0  #: nothing was there before
        self.before_first: Callable[[bytes], None] | None = None  #: is told what is written next, once

    def write(self, lines: bytes) -> None:
        """Write lines, all or none."""
        if self.before_first is not None:
            self.before_first(lines)
            self.before_first = None
        if str(self._path) == "-":
            sys.stdout.flush()
        write_all(self._fd, lines, self._path)

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if self._fd >= 0 and str(self._path) != "-":
            os.close(self._fd)
        self._fd = -1


def _open_locked(path: str | Path, *, append: bool) -> int:
    """Open a file to add lines to; it is emptied, or its last line ended, only when nobody else writes it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        hold(fd, path)
        stat_result = os.fstat(fd)
        if stat.S_ISREG(stat_result.st_mode) and stat_result.st_size:
            if not append:
                os.ftruncate(fd, 0)
            elif not _ends_in_newline(path):
                write_all(fd, b"\n", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _ends_in_newline(path: str | Path) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except PermissionError:  # a file that may be written and not read
        return True


def parse_position(position: Any, path: str | Path) -> tuple[int, int, int | None]:
    """Return the bytes and lines of a position, nothing before the first, and the checksum of what was seen there."""
    match position:
        case None:
            return 0, 0, None
        case [int(offset), int(line)]:
            return offset, line, None
        case [int(offset), int(line), int(checksum)]:
            return offset, line, checksum
    raise InputError(f"cannot read {path} from position {position!r}: expected [bytes, lines, checksum]")


def checksum_before(fd: int, offset: int) -> int:
    """Return a checksum by which an open file is known again behind so many bytes: of its first ones, and of the last.

    Not of the end of the last line, which it may have got since.
    """
    stop = max(0, offset - 1)
    last = max(0, stop - _KNOWN_BY)
    return crc32(os.pread(fd, stop - last, last), crc32(os.pread(fd, min(_KNOWN_BY, stop), 0)))
