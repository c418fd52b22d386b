"""Files, and what is said when one cannot be opened, read or written."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from headwater.errors import UNREAD, GoneError, InputError, NoRoomError, PathError

_FIXES = {
    errno.ENOENT: "there is no such file; is the path right, seen from {cwd}?",
    errno.EEXIST: "a file is there, and a directory is needed; name another",
    errno.EISDIR: "it is a directory; name a file in it",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EACCES: "permission denied; run as a user who may, or change its mode",
    errno.EPERM: "permission denied; run as a user who may, or change its mode",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.ENOSPC: "the disk is full; free some space or choose another place",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another place",
    errno.EFBIG: "the file is as large as it may get; choose another place or raise the limit",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.EIO: "the device fails to read or write; is it still plugged in?",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_WRONG = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST)  #: of a path that cannot be meant


def explained(error: OSError, path: str | Path, doing: str) -> InputError:
    """Say what could not be done with a file, and the likely fix.

    >>> print(explained(OSError(errno.ENOSPC, ""), "out.csv", "write"))
    cannot write out.csv: the disk is full; free some space or choose another place
    """
    fix = _FIXES.get(error.errno or 0, error.strerror or str(error))
    if error.errno == errno.ENOENT and doing == "write":
        fix = "its directory does not exist; make it first"
    if error.errno == errno.EPIPE and str(path) == "-":  # another may come to a pipe that has a name
        return GoneError(UNREAD)
    if error.errno == errno.EBADF and str(path) == "-" and doing == "write":
        return GoneError("standard output is closed; write the records to a file, with --output")
    kind = NoRoomError if error.errno in _FULL else PathError if error.errno in _WRONG else InputError
    return kind(f"cannot {doing} {path}: {fix.format(cwd=os.getcwd())}")


def check_writable(path: str | Path) -> None:
    """Raise InputError where a file cannot be written; what is there stays as it is, and a pipe is left alone."""
    try:
        if not Path(path).exists():
            if not os.access(Path(path).parent, os.W_OK):
                Path(path).parent.stat()
                raise PermissionError(errno.EACCES, "")
        elif Path(path).is_dir() or Path(path).is_file():
            os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        raise explained(error, path, "write") from error


def check_no_file(path: str | Path, why: str) -> None:
    """Raise InputError where a file is in the place of a folder that is to be written; it stays as it is."""
    if Path(path).is_file():
        raise PathError(f"cannot write {path}: it is a file, and {why}; remove or rename it, or write elsewhere")


def is_full(error: BaseException | None) -> bool:
    """Tell whether something failed for want of room on the disk, which may come back; also as one of our own errors."""
    return isinstance(error, NoRoomError) or (isinstance(error, OSError) and error.errno in _FULL)


def hold(fd: int, path: str | Path) -> None:
    """Keep an open file to ourselves until it is closed; raises InputError where another run is writing it."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"cannot write {path}: another run is writing it; wait until that has ended, or write elsewhere"
        ) from None
    except OSError:
        pass  # a file system that knows no locks: one has to trust that nobody else writes


def sync(path: str | Path) -> None:
    """Have a file's bytes, or a folder's names, safe on disk: there after the power went."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there as it was or as it is now, whatever happens meanwhile; raises InputError."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync(path.parent)
    except OSError as error:
        raise explained(error, path, "write") from error


def write_all(fd: int, data: bytes, path: str | Path) -> None:
    """Write all of the data, or raise InputError and leave a file as it was."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        _take_back(fd, len(data) - len(view))
        raise explained(error, path, "write") from error


def _take_back(fd: int, count: int) -> None:
    """Cut off the last bytes written, where that can be done."""
    if count and stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, os.lseek(fd, -count, os.SEEK_CUR))
