"""Where a checkpoint is: a folder that this machine sees, or a URL that Spark's file systems know."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol

import msgspec

from headwater.errors import RunError
from headwater.io.files import sync
from headwater.io.lock import FILE as LOCK
from headwater.io.lock import Lock
from headwater.io.move_marker import refuse_moved
from headwater.io.urls import path_in
from headwater.spark.storage import Storage

log = logging.getLogger(__name__)

_NOTES = "notes"  #: what sinks have noted, all of it in one file
_SINKS = "sinks"


class Place(Protocol):
    """The folder of a checkpoint, wherever it is; names in it have `/` between them."""

    @property
    def folder(self) -> Path:
        """A folder of this machine: for the notes of sinks, and what only the driver needs."""

    @property
    def is_far(self) -> bool:
        """Whether it is reached through Spark alone, which must be running then."""

    def url(self, name: str) -> str:
        """Return what Spark calls a part of it."""

    def read(self, name: str) -> bytes | None:
        """Return a file of ours; None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file of ours: it is there as it was or as it is now, whatever happens meanwhile."""

    def raw(self, name: str) -> bytes:
        """Return a file that Spark has written."""

    def names(self, folder: str = "") -> list[str]:
        """Return what a folder of it holds; nothing where there is none."""

    def exists(self, name: str) -> bool:
        """Say whether Spark has written a file."""

    def lock(self) -> None:
        """Keep other runs out."""

    def save(self) -> None:
        """Have what sinks have noted in `folder` where the next run finds it."""

    def release(self) -> None:
        """Let other runs in."""


def place_of(at: str | Path) -> Place:
    """Return the place that a path or URL names.

    >>> place_of("file:///tmp/kept").folder, place_of("s3a://lake/kept").is_far
    (PosixPath('/tmp/kept'), True)
    """
    path = path_in(at)
    return UrlPlace(str(at)) if path is None else FolderPlace(path.absolute())


class FolderPlace:
    """A folder of this machine."""

    is_far = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: Lock | None = None

    def __str__(self) -> str:
        return str(self.folder)

    def url(self, name: str) -> str:
        """Return it with its scheme, since a cluster may have another default, and as it is: Hadoop reads no %20."""
        return f"file://{self.folder / name}"

    def read(self, name: str) -> bytes | None:
        """Return a file."""
        try:
            return (self.folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):  # that a file stands where the folder is to be, `lock` tells
            return None
        except OSError as error:
            raise RunError(f"cannot read checkpoint {self.folder / name}: {error}") from None

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole."""
        fresh = self.folder / f"{name}.new"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            sync(fresh)  # sinks go by what it says of their parts
            fresh.replace(self.folder / name)
        except OSError as error:
            raise RunError(f"cannot write checkpoint {self.folder}: {error.strerror}") from error

    def raw(self, name: str) -> bytes:
        """Return a file."""
        return (self.folder / name).read_bytes()

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder."""
        path = self.folder / folder
        return [each.name for each in path.iterdir()] if path.is_dir() else []

    def exists(self, name: str) -> bool:
        """Ask the system."""
        return (self.folder / name).exists()

    def lock(self) -> None:
        """Take the system's lock, which ends with this process."""
        refuse_moved(self.folder)
        self._lock = Lock(self.folder, "checkpoint")

    def save(self) -> None:
        """Do nothing: notes are made where they belong."""

    def release(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class UrlPlace:
    """A folder at a URL. Notes of sinks are made in a folder of this machine, and brought there behind each micro-batch.

    There are no locks there: who is at work is written down, which keeps out a second run of this machine. One elsewhere is
    warned, and Spark ends the later of two that write the same micro-batch.
    """

    is_far = True

    def __init__(self, url: str) -> None:
        self._storage = Storage(url)
        self._folder: Path | None = None
        self._saved = b""
        self._is_locked = False

    def __str__(self) -> str:
        return str(self._storage)

    @property
    def folder(self) -> Path:
        """A folder for this run, with what sinks have noted before."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="headwater-notes-"))
            self._saved = self._storage.read(_NOTES) or b""
            notes: dict[str, bytes] = msgspec.msgpack.decode(self._saved) if self._saved else {}
            for name, data in notes.items():
                path = self._folder / _SINKS / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        return self._folder

    def url(self, name: str) -> str:
        """Return the URL of a part."""
        return f"{self._storage.url}/{name}"

    def read(self, name: str) -> bytes | None:
        """Return a file as it was last written."""
        return self._storage.read(name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole."""
        self._storage.write(name, data)

    def raw(self, name: str) -> bytes:
        """Return a file of Spark's."""
        return self._storage.raw(name)

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder; files of ours without the numbers of their versions."""
        names = self._storage.names(folder)
        return names if folder else sorted({re.sub(r"\.(\d+|new)$", "", name) for name in names})

    def exists(self, name: str) -> bool:
        """Ask the file system."""
        return self._storage.exists(name)

    def lock(self) -> None:
        """Write down who is at work, and refuse where another process of this machine is."""
        text = self._storage.read(LOCK)
        holder: dict[str, Any] = json.loads(text) if text else {}
        mine = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "born": _born(os.getpid()),
            "since": datetime.now(UTC).isoformat(" ", "seconds"),
        }
        if holder and holder["host"] != mine["host"]:
            log.warning(
                "checkpoint %s was in use on %s since %s, which did not end in order: see to it that it runs no more",
                self,
                holder["host"],
                holder["since"],
            )
        elif holder and _born(int(holder["pid"])) == holder["born"]:
            raise RunError(
                f"checkpoint {self} is in use by process {holder['pid']} since {holder['since']}; wait until that run has "
                "ended, stop it, or give another folder"
            )
        self._storage.write(LOCK, json.dumps(mine).encode())
        self._is_locked = True

    def save(self) -> None:
        """Bring what sinks have noted there, if it has changed."""
        if self._folder is None:
            return
        sinks = self._folder / _SINKS
        files = sorted(path for path in sinks.rglob("*") if path.is_file() and path.suffix != ".new")
        data = msgspec.msgpack.encode({str(path.relative_to(sinks)): path.read_bytes() for path in files})
        if data != self._saved:
            self._storage.write(_NOTES, data)
            self._saved = data

    def release(self) -> None:
        """Take back that this process is at work."""
        if self._is_locked:
            self._is_locked = False
            with suppress(RunError):  # it says who it was, and that process is no more
                self._storage.remove(LOCK)
        if self._folder is not None:
            rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _born(pid: int) -> str | None:
    """Tell when a process of this machine began, which tells it from others of its number; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]
