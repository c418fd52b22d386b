"""Who works with a folder: one process at a time, known by name to those who come too late."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

from headwater.errors import RunError

log = logging.getLogger(__name__)

FILE = "lock"
_ENDING_S = 5.0  #: for which those that a process had forked may outlive it


class Lock:
    """A lock on a folder. The system holds it for this process, so that it ends with the process, even by `kill -9`."""

    def __init__(self, folder: Path, what: str) -> None:
        """Take the lock; `what` names the folder in the message for whoever finds it taken."""
        self._folder, self._what = folder, what
        self._fd = self._take_lock()

    def _take_lock(self) -> int:
        """Take the lock, and return the open file that has it."""
        folder, what = self._folder, self._what
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileExistsError, NotADirectoryError) as error:
            file = next(path for path in (folder, *folder.parents) if path.exists())
            raise RunError(
                f"cannot write {what} {folder}: {file} is a file, and a folder is needed; name one, which may be new"
            ) from error
        except OSError as error:
            raise RunError(f"cannot write {what} {folder}: {error.strerror}") from error
        try:
            _take(fd)
        except BlockingIOError:
            holder = _holder(fd)
            os.close(fd)
            raise RunError(
                f"{what} {folder} is in use by {holder}; wait until that run has ended, stop it, or give another folder"
            ) from None
        except OSError as error:  # some network file systems know no locks: their users must look out themselves
            log.warning(
                "%s %s cannot be locked (%s): see to it that no other run uses it", what, folder, error.strerror
            )
        mine = {"host": socket.gethostname(), "pid": os.getpid(), "since": datetime.now(UTC).isoformat(" ", "seconds")}
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(mine).encode(), 0)
        return fd

    def renew(self) -> None:
        """Take the lock once more where somebody has deleted its file; raises RunError if another run was faster."""
        try:
            is_there = os.path.samestat(os.stat(self._folder / FILE), os.fstat(self._fd))
        except OSError:
            is_there = False
        if not is_there:
            before, self._fd = self._fd, self._take_lock()
            os.close(before)

    def release(self) -> None:
        """Let others have the folder; the file stays, since another may be waiting for it already."""
        os.close(self._fd)


def _take(fd: int) -> None:
    """Take the lock; of a process that was killed, wait for those that it had forked, such as lanes: they end too."""
    until = time.monotonic() + _ENDING_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until or not _is_gone(fd):
                raise
        time.sleep(0.02)


def _is_gone(fd: int) -> bool:
    """Say whether the process that took the lock, on this machine, is no more."""
    try:
        holder = json.loads(os.pread(fd, 4096, 0))
        if holder["host"] == socket.gethostname():
            os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, PermissionError):
        pass
    return False


def _holder(fd: int) -> str:
    try:
        holder = json.loads(os.pread(fd, 4096, 0))
        where = "" if holder["host"] == socket.gethostname() else f" on {holder['host']}"
        return f"process {holder['pid']}{where} since {holder['since']}"
    except (ValueError, KeyError, TypeError):  # it has only just begun
        return "another run"
