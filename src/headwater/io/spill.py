"""A queue of batches on disk, for when memory is full: a log in files without names."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

from headwater.data.batch import Batch
from headwater.data.frames import pack, unpack_frame
from headwater.errors import InputError
from headwater.io.files import explained
from headwater.io.log import Bounds, Consumer, Log, SystemDisk


class SpillFile:
    """Keeps batches on disk, first in first out; they come back with the same columns, stamps and watermark.

    The files have no names, so that nothing is left behind however the process ends. `max_bytes` bounds what
    they take on disk; a batch beyond it, or beyond the disk, is refused with InputError and the queue stays
    as it was. Not safe for several threads at once: the queue that owns it has a lock already.
    """

    def __init__(self, directory: str | Path, max_bytes: int | None = None) -> None:
        self._directory, self._bounds = Path(directory), Bounds(max_bytes)
        self._disk: _Nameless | None = None  # made with the first batch
        self._log: Log
        self._consumer: Consumer
        self._batches = 0

    def __len__(self) -> int:
        """Return how many batches wait."""
        return self._batches

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return self._log.nbytes if self._disk is not None else 0

    def append(self, batch: Batch) -> None:
        """Store a batch behind all others."""
        if self._disk is None:
            disk = _Nameless(self._directory)
            try:
                self._log = Log(self._directory, self._bounds, durable=False, disk=disk)
                self._consumer = self._log.consumer("spill")
            except InputError:
                disk.close_all()
                raise
            self._disk = disk
        self._log.append(pack(batch))
        self._batches += 1

    def popleft(self) -> Batch:
        """Return the oldest batch and forget it."""
        if not self._batches:
            raise IndexError("pop from an empty spill file")
        entries = self._consumer.read(1)
        if not entries or self._consumer.reader.lost:
            raise InputError(f"cannot read back from {self._directory}: a spilled batch is damaged or cut short")
        self._batches -= 1
        self._consumer.release(entries[0].position + 1)
        if not self._batches:
            self._log.clear()
        return unpack_frame(entries[0].data)

    def close(self) -> None:
        """Forget what is left and free the disk."""
        if self._disk is not None:
            self._consumer.close()
            self._log.close()
            self._disk.close_all()
        self._disk, self._batches = None, 0


class _Nameless(SystemDisk):
    """Files that have a name only here: the system forgets them with this process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, IO[bytes]] = {}

    def mkdir(self, folder: str) -> None:
        """It is made with the first file."""

    def listdir(self, folder: str) -> list[str]:
        """Return the names that files have here."""
        return [os.path.basename(path) for path in self._files]

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file; who opens it twice writes in one place."""
        if path not in self._files:
            if not create:
                raise FileNotFoundError(path)
            self._files[path] = open_nameless(self._directory)
        return os.dup(self._files[path].fileno())

    def fsync(self, fd: int) -> None:
        """Nothing here outlives the process."""

    def fsync_dir(self, folder: str) -> None:
        """Nothing here outlives the process."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        self._files[new] = self._files.pop(old)

    def unlink(self, path: str) -> None:
        """Forget a file; the system frees it when nobody reads it any more."""
        self._files.pop(path).close()

    def lock(self, fd: int) -> bool:
        """Nobody else knows the file."""
        return True

    def close_all(self) -> None:
        """Forget all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


def open_nameless(directory: Path) -> IO[bytes]:
    """Open a file without a name, making the directory if need be."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=directory, buffering=0)
    except OSError as error:
        raise explained(error, directory, "spill to") from error
