"""A text file that grows, and that others rotate: by renaming it, or by copying it away and cutting it off."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from headwater.errors import InputError
from headwater.io.files import explained

log = logging.getLogger(__name__)

_CHUNK = 2**18
_HEAD = 1024  #: bytes at the beginning by which a file is known, whatever it is called
_POLL_S, _GRACE_S = 0.05, 0.3  #: between two looks; for which who writes may go on with a file that was renamed
_PACKED = (".gz", ".xz", ".bz2", ".zst", ".zip")
_LOOKS, _LOOK_S = 200, 0.01  #: at a folder in which files are just being renamed


class _File(NamedTuple):
    """A file, open since its name may be another's before its turn comes, and where to read on in it."""

    fd: int
    offset: int
    line: int


class FollowedLines:
    """The lines of a file and of those that take its place, each whole line once, as `Lines` hands them out.

    A position is the file's inode, the bytes and lines that were handed out, and a checksum of its head: by that the file is
    found again under another name, or its copy, when it was rotated meanwhile. Files that came between are read too, oldest
    first. If it is not there any more, that is said in the log, and reading goes on with what is there.
    """

    once = False
    whole = True  #: as of `Lines`: it never hands out a line that has no end

    def __init__(self, path: str | Path, position: Any = None) -> None:
        self._path = Path(path)
        self._fd, self._inode = -1, 0
        self.offset = self.line = 0  #: bytes and lines of the current file that were handed out
        self._head = b""
        self._read_to = 0  # bytes of the current file that were read
        self._rest = b""
        self._ready: deque[bytes] = deque()
        self._next: deque[_File] = deque()  # files to read after the current one
        self._rotated_s: float | None = None  # since when another file is in its place
        if position is not None:
            self._resume(_parse_position(position, path))

    @property
    def position(self) -> list[int]:
        """Where the next line starts, and in which file."""
        return self.position_at(self.offset, self.line)

    def position_at(self, offset: int, line: int) -> list[int]:
        """Return the place behind so many bytes and lines, in which file, and by what that is known."""
        head = self._head[:offset]
        return [self._inode, offset, line, len(head), crc32(head)]

    def take(self, limit: int, timeout_s: float) -> list[bytes]:
        """Return up to `limit` whole lines, none if none came in time; there is no last one."""
        until = time.monotonic() + timeout_s
        while not self._ready and not self._fill():
            if time.monotonic() >= until:
                return []
            time.sleep(min(_POLL_S, timeout_s))
        lines = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
        self.line += len(lines)
        self.offset += sum(map(len, lines)) + len(lines)
        return lines

    def close(self) -> None:
        """Close the file, and those that would come next."""
        self._leave()
        _close(self._next)
        self._next.clear()

    def _fill(self) -> bool:
        """Read on; tell whether there are whole lines, or another file was begun that may have some."""
        try:
            if self._fd < 0:
                return self._begin_next()
            if (
                not self._next and self._is_another()
            ):  # before reading: what was cut off and has grown again is no more of it
                return self._turn()
            data = os.read(self._fd, _CHUNK)
            if data:
                self._take_in(data)
                return bool(self._ready)
            return self._end_file() if self._next else False
        except FileNotFoundError:
            return False
        except OSError as error:
            raise explained(error, self._path, "read") from error

    def _take_in(self, data: bytes) -> None:
        if self._read_to < _HEAD:
            self._head = (self._head + data)[:_HEAD]
        self._read_to += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._ready += lines

    def _is_another(self) -> bool:
        """Tell whether the file under the name is not, or no longer, the one that is read."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return False  # it was renamed, and may grow until there is another
        if stat.st_ino != self._inode:
            return True
        return stat.st_size < self._read_to or os.pread(self._fd, len(self._head), 0) != self._head

    def _turn(self) -> bool:
        """Go on with the file that takes the place of this one, once nobody adds to this one any more."""
        data = os.read(self._fd, _CHUNK) if os.fstat(self._fd).st_size > self._read_to and not self._is_cut() else b""
        if data:
            self._take_in(data)
            self._rotated_s = None
            return True
        self._rotated_s = self._rotated_s or time.monotonic()
        if time.monotonic() < self._rotated_s + _GRACE_S:
            return False
        self._rotated_s = None
        start = self._read_to - len(self._rest)  # what was not read of one that is cut off is in its copy
        chain = deque(self._chain(self._inode, start, self.line, len(self._head), crc32(self._head)))
        if chain and chain[0].offset == start > 0:
            if os.fstat(chain[0].fd).st_size > self._read_to:
                self._rest = b""  # there is more of its last line
            else:
                os.close(chain.popleft().fd)
        self._next = chain
        return self._end_file()

    def _is_cut(self) -> bool:
        is_shorter = os.fstat(self._fd).st_size < self._read_to
        return is_shorter or os.pread(self._fd, len(self._head), 0) != self._head

    def _end_file(self) -> bool:
        """Leave the current file; a last line needs no end."""
        if self._rest:
            self._ready.append(self._rest)
            self._rest = b""
            return True
        self._leave()
        return self._begin_next()

    def _leave(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _begin_next(self) -> bool:
        if not self._next:
            self._next.append(_File(os.open(self._path, os.O_RDONLY), 0, 0))
        self._fd, offset, line = self._next.popleft()
        self._inode = os.fstat(self._fd).st_ino
        self._head = os.pread(self._fd, min(_HEAD, offset), 0)
        os.lseek(self._fd, offset, os.SEEK_SET)
        self.offset, self.line, self._read_to, self._rest = offset, line, offset, b""
        return False

    def _resume(self, position: tuple[int, int, int, int, int]) -> None:
        inode, offset, line, head_size, checksum = position
        try:
            self._next = deque(self._chain(inode, offset, line, head_size, checksum))
        except OSError as error:
            raise explained(error, self._path, "read") from error

    def _chain(self, inode: int, offset: int, line: int, head_size: int, checksum: int) -> list[_File]:
        """Return the file that was read, wherever it is now, and those after it, up to the one under the name."""
        for _ in range(_LOOKS):
            names = self._names()
            try:
                old, since = self._old_and_since(list(names), inode, offset, head_size, checksum)
                chain = _open_all(([] if old is None else [(old, offset, line)]) + [(each, 0, 0) for each in since])
            except FileNotFoundError:  # it was renamed since
                chain = None
            if chain is not None and self._names() == names:
                if old is None and (inode or head_size):
                    log.warning(
                        "%s: the file that was read up to byte %d is gone, and what was added to it after that; reading "
                        "goes on with the one that is there",
                        self._path,
                        offset,
                    )
                return chain
            _close(chain or ())
            time.sleep(_LOOK_S)
        raise InputError(f"cannot follow {self._path}: the files beside it are renamed again and again")

    def _names(self) -> dict[Path, int]:
        """Return the file and those that it was rotated to, with what tells them from others of their names."""
        with os.scandir(self._path.parent) as entries:
            mine = [each for each in entries if each.name.startswith(self._path.name) and each.is_file()]
        names = {self._path.with_name(each.name): each.inode() for each in mine}
        return {path: inode for path, inode in names.items() if path.suffix not in _PACKED}

    def _old_and_since(
        self, names: list[Path], inode: int, offset: int, head_size: int, checksum: int
    ) -> tuple[Path | None, list[Path]]:
        """Return which file is the one that was read, if any is, and those to read after it, oldest first."""
        if head_size:
            same = [each for each in names if _is_same(each, offset, head_size, checksum)]
        else:  # nothing of it was read
            same = [each for each in names if each.stat().st_ino == inode]
        now = [self._path] if self._path in names else []
        # one that is still there but is not what it was has been cut off: what it has now came later, whatever its name
        cut_files = [each for each in names if each not in same and each.stat().st_ino == inode]
        old = min(same, key=lambda each: (each.stat().st_ino != inode, -each.stat().st_mtime_ns), default=None)
        if old == self._path or not (same or cut_files):
            return old, [] if old == self._path else now
        since = min(each.stat().st_mtime_ns for each in [*([] if old is None else [old]), *cut_files])
        between = [
            each
            for each in names
            if each not in (old, self._path) and (each.stat().st_mtime_ns > since or each in cut_files)
        ]
        return old, [*sorted(between, key=lambda each: each.stat().st_mtime_ns), *now]


def _open_all(places: Iterable[tuple[Path, int, int]]) -> list[_File]:
    files: list[_File] = []
    try:
        for path, offset, line in places:
            files.append(_File(os.open(path, os.O_RDONLY), offset, line))
    except OSError:
        _close(files)
        raise
    return files


def _close(files: Iterable[_File]) -> None:
    for file in files:
        os.close(file.fd)


def _is_same(path: Path, offset: int, head_size: int, checksum: int) -> bool:
    if path.stat().st_size + 1 < offset:  # one more than its size: the last line had no end
        return False
    with path.open("rb") as file:
        return crc32(file.read(head_size)) == checksum


def _parse_position(position: Any, path: str | Path) -> tuple[int, int, int, int, int]:
    match position:
        case [int(inode), int(offset), int(line), int(head_size), int(checksum)]:
            return inode, offset, line, head_size, checksum
    raise InputError(f"cannot follow {path} from position {position!r}: was it read without follow=True then?")
