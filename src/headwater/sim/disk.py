"""A disk in memory that crashes, fills up and fails as real ones do: what has to survive that is tested on it.

A file has two contents: the one that everybody reads, and what is on the medium. Pages go from one to the other when the
file is made safe, and at a crash by chance, whole or torn. Names in a folder are made safe apart from the files. It has the
calls of `headwater.io.log.disk.Disk`; the same seed gives the same disk.
"""

from __future__ import annotations

import errno
from random import Random

_PAGE = 64  #: bytes that go to the medium together


class PowerCutError(BaseException):
    """The machine is off in the middle of a call: nobody can catch that, except who cut the power."""


class _File:
    """A file's two contents, and the pages in which they may differ."""

    __slots__ = ("data", "dirty", "medium")

    def __init__(self) -> None:
        self.data = bytearray()
        self.medium = bytearray()
        self.dirty: set[int] = set()


class SimulatedDisk:
    """A disk that loses what was not made safe. `chances` says how often a call fails: by its name, a number from 0 to 1.

    `write` fails for want of room or with an error of the device, or takes some of the bytes only; `fsync` loses some of
    what it should have made safe, and a later one does not bring it; all others fail and do nothing. `room` bounds the bytes
    of all files. With a `fuse`, the call after so many others raises PowerCutError; `crash` is then for the caller to call.
    """

    def __init__(self, random: Random, *, chances: dict[str, float] | None = None, room: int | None = None) -> None:
        self.random, self.chances, self.room = random, chances or {}, room
        self.fuse: int | None = None
        self.failed = 0  #: calls that failed
        self._names: dict[str, _File] = {}
        self._safe_names: dict[str, _File] = {}
        self._changes: list[tuple[str, _File | None]] = []  # of names, since a folder was made safe
        self._open: dict[int, tuple[_File, list[int]]] = {}  # the file, and where it is written
        self._locks: dict[int, _File] = {}
        self._next = 3

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process that uses the disk: its files are closed, and all it wrote can be read."""
        self._open.clear()
        self._locks.clear()

    def crash(self) -> None:
        """Cut the power: what was not safe is there or not, by chance, in parts."""
        self.kill()
        names = dict(self._safe_names)
        ordered = self.random.random() < 0.5  # as by a journal; else each change by itself
        count = self.random.randrange(len(self._changes) + 1) if self._changes else 0
        for number, (name, file) in enumerate(self._changes):
            if (number < count) if ordered else (self.random.random() < 0.5):
                if file is None:
                    names.pop(name, None)
                else:
                    names[name] = file
        self._names, self._safe_names, self._changes = names, dict(names), []
        for each in {id(file): file for file in names.values()}.values():
            self._write_some(each)
            each.data = bytearray(each.medium)

    def rot(self, path: str, byte: int) -> None:
        """Change one byte of a file, on the medium too."""
        file = self._names[path]
        file.data[byte] ^= 1
        if byte < len(file.medium):
            file.medium[byte] ^= 1

    def delete(self, folder: str) -> None:
        """Delete all files of a folder, as somebody does who cleans up; who has them open can still read them."""
        for path in [path for path in self._names if path.startswith(folder + "/")]:
            self._name(path, None)
        self._keep_names()

    def used(self) -> int:
        """Return the bytes of all files."""
        return sum(len(file.data) for file in self._names.values())

    # -- the calls ----------------------------------------------------------------------------------------------------

    def mkdir(self, folder: str) -> None:
        """Folders are there when a file in them is."""
        self._may_fail("mkdir")

    def listdir(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        above = folder + "/"
        return [path.removeprefix(above) for path in self._names if path.startswith(above)]

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file; who writes begins at its end."""
        self._may_fail("open")
        file = self._names.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file")
            file = _File()
            self._name(path, file)
        fd = self._next
        self._next += 1
        self._open[fd] = (file, [len(file.data)])
        return fd

    def read(self, fd: int, size: int, at: int) -> bytes:
        """Return up to `size` bytes from a place on."""
        self._may_fail("read")
        return bytes(self._open[fd][0].data[at : at + size])

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write some of the bytes, or all."""
        file, at = self._open[fd]
        count = len(data)
        if self.room is not None:
            count = min(count, max(0, self.room - self.used()))
            if not count and data:
                self.failed += 1
                raise OSError(errno.ENOSPC, "no room")
        if self._happens("write"):
            if self.random.random() < 0.5:
                self.failed += 1
                raise OSError(errno.EIO if self.random.random() < 0.5 else errno.ENOSPC, "cannot write")
            count = self.random.randrange(count + 1)
        self._put(file, bytes(data[:count]), at[0])
        at[0] += count
        return count

    def write_at(self, fd: int, data: bytes, at: int) -> None:
        """Write a few bytes in their place."""
        self._may_fail("write_at")
        self._put(self._open[fd][0], data, at)

    def size(self, fd: int) -> int:
        """Return how long a file is."""
        return len(self._open[fd][0].data)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file, and go on writing there."""
        self._may_fail("truncate")
        file, at = self._open[fd]
        last = max(len(file.data), size)
        file.dirty.update(range(size // _PAGE, last // _PAGE + 1))
        del file.data[size:]
        at[0] = size

    def fsync(self, fd: int) -> None:
        """Have a file's bytes on the medium; when it fails, what is not there by then never will be by itself."""
        file = self._open[fd][0]
        if self._happens("fsync"):
            self.failed += 1
            self._write_some(file)
            raise OSError(errno.EIO, "cannot write back")
        if file.dirty:
            self._write_pages(file, file.dirty)
            file.dirty = set()

    def close(self, fd: int) -> None:
        """Close an open file."""
        self._open.pop(fd, None)
        self._locks.pop(fd, None)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name: after a crash it may have either, both or none."""
        self._may_fail("rename")
        file = self._names[old]
        self._name(new, file)
        self._name(old, None)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._may_fail("unlink")
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file")
        self._name(path, None)

    def fsync_dir(self, folder: str) -> None:
        """Have the names safe."""
        self._may_fail("fsync_dir")
        self._keep_names()

    def is_at(self, fd: int, path: str) -> bool:
        """Tell whether a path still leads to an open file."""
        self._may_fail("is_at")
        return self._names.get(path) is self._open[fd][0]

    def lock(self, fd: int) -> bool:
        """Keep an open file to ourselves."""
        file = self._open[fd][0]
        if any(other is file for other in self._locks.values()):
            return False
        self._locks[fd] = file
        return True

    # -- how it is done -----------------------------------------------------------------------------------------------

    def _happens(self, call: str) -> bool:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise PowerCutError
        chance = self.chances.get(call)
        return chance is not None and self.random.random() < chance

    def _may_fail(self, call: str) -> None:
        if self._happens(call):
            self.failed += 1
            raise OSError(errno.EIO, f"cannot {call}")

    def _name(self, path: str, file: _File | None) -> None:
        if file is None:
            del self._names[path]
        else:
            self._names[path] = file
        self._changes.append((path, file))

    def _keep_names(self) -> None:
        self._safe_names, self._changes = dict(self._names), []

    def _put(self, file: _File, data: bytes, at: int) -> None:
        if len(file.data) < at:
            file.data.extend(bytes(at - len(file.data)))
        end = at + len(data)
        file.data[at:end] = data
        file.dirty.update(range(at // _PAGE, (end - 1) // _PAGE + 1))

    def _write_some(self, file: _File) -> None:
        """Bring some of the pages to the medium, some in part; the others stay as they are there."""
        random = self.random
        whole = [page for page in sorted(file.dirty) if random.random() < 0.5]
        torn = [page for page in whole if random.random() < 0.2]
        before = bytes(file.medium)
        self._write_pages(file, whole)
        for page in torn:
            start = page * _PAGE + random.randrange(_PAGE)
            stop = min((page + 1) * _PAGE, len(file.medium))
            for byte in range(start, stop):
                file.medium[byte] = before[byte] if byte < len(before) else 0
        file.dirty = set()

    def _write_pages(self, file: _File, pages: set[int] | list[int]) -> None:
        data, medium = file.data, file.medium
        for page in pages:
            start, stop = page * _PAGE, (page + 1) * _PAGE
            if start >= len(data):  # a page that was cut off
                del medium[start:]
                continue
            if len(medium) < start:
                medium.extend(bytes(start - len(medium)))
            medium[start:stop] = data[start:stop]
            if stop > len(data):
                del medium[len(data) :]
