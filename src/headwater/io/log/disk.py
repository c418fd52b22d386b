"""What a log asks of a disk: the calls of the system, and no others, so that a simulated disk can stand in for it."""

from __future__ import annotations

import fcntl
import os
from typing import Protocol


class Disk(Protocol):
    """Files and folders by path, open files by number. All of it raises OSError, as the system does."""

    def mkdir(self, folder: str) -> None:
        """Make a folder and those above it, where they are not there."""

    def listdir(self, folder: str) -> list[str]:
        """Return the names in a folder."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file to read; with `create`, to read and to write, and make it if need be."""

    def read(self, fd: int, size: int, at: int) -> bytes:
        """Return up to `size` bytes from a place on; fewer at the end of the file."""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write behind what this open file has written or was cut to; return how many bytes were taken, maybe not all."""

    def write_at(self, fd: int, data: bytes, at: int) -> None:
        """Write a few bytes in their place."""

    def size(self, fd: int) -> int:
        """Return how long a file is."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file, and go on writing there."""

    def fsync(self, fd: int) -> None:
        """Have a file's bytes safe. After an error, those written before may be gone, whatever a later call says."""

    def close(self, fd: int) -> None:
        """Close an open file; locks go with it."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of who had it."""

    def unlink(self, path: str) -> None:
        """Remove a file; who has it open can still read it."""

    def fsync_dir(self, folder: str) -> None:
        """Have a folder's names safe: files that were made, renamed or removed."""

    def is_at(self, fd: int, path: str) -> bool:
        """Tell whether a path still leads to an open file, which somebody may have deleted or moved away."""

    def lock(self, fd: int) -> bool:
        """Lock an open file; False if another process has the lock."""


class SystemDisk:
    """The machine's own disks."""

    def mkdir(self, folder: str) -> None:
        """Make a folder and those above it, where they are not there."""
        os.makedirs(folder, exist_ok=True)

    def listdir(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(folder)

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file; who writes begins at its end."""
        if not create:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.lseek(fd, 0, os.SEEK_END)
        return fd

    def read(self, fd: int, size: int, at: int) -> bytes:
        """Return up to `size` bytes from a place on."""
        return os.pread(fd, size, at)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write behind the rest."""
        return os.write(fd, data)

    def write_at(self, fd: int, data: bytes, at: int) -> None:
        """Write a few bytes in their place."""
        os.pwrite(fd, data, at)

    def size(self, fd: int) -> int:
        """Return how long a file is."""
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file, and go on writing there."""
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)

    def fsync(self, fd: int) -> None:
        """Have a file's bytes safe."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close an open file."""
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def fsync_dir(self, folder: str) -> None:
        """Have a folder's names safe."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def is_at(self, fd: int, path: str) -> bool:
        """Tell whether a path still leads to an open file."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def lock(self, fd: int) -> bool:
        """Lock an open file."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system that knows no locks: one has to trust that nobody else writes
        return True
