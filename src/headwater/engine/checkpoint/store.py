"""Checkpoints in a folder: each one file, written whole, checked by a checksum when it is read."""

from __future__ import annotations

import contextlib
import logging
import struct
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from headwater.data.codec import decode, encode
from headwater.errors import RunError
from headwater.io.log.disk import Disk, SystemDisk

log = logging.getLogger(__name__)

_MAGIC = b"HWCKPT01"
_HEAD = struct.Struct("<8sQI")  #: magic, length and checksum of what follows
_KEPT = 2  #: complete checkpoints that stay: the last, and the one before, should the last be unreadable
_SUFFIX = ".checkpoint"
_CHUNK = 2**20


def refuse_others(folder: Path) -> None:
    """Raise RunError for a folder that holds something else than checkpoints of the engine."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if not names or any(name.endswith((_SUFFIX, f"{_SUFFIX}.new")) for name in names):
        return
    if "headwater.json" in names:
        raise RunError(
            f"checkpoint {folder} is one of Spark's, which the engine cannot go on from; "
            "give each runner a folder of its own"
        )
    if set(names) - {"lock", "sinks", "sources"}:
        raise RunError(f"{folder} is no checkpoint of Headwater's, and not empty; give an empty or a new folder")


class Checkpoint(NamedTuple):
    """A complete checkpoint."""

    number: int
    content: dict[str, Any]


class Store:
    """Writes and finds checkpoints; what it has written is there after any crash, or was never complete."""

    def __init__(self, folder: str | Path, disk: Disk | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.disk: Disk = disk or SystemDisk()
        self.written_bytes = 0  #: the size of the last one
        try:
            self.disk.mkdir(str(self.folder))
        except OSError as error:
            raise RunError(f"cannot keep checkpoints in {self.folder}: {error.strerror}") from error

    def write(self, number: int, content: dict[str, Any]) -> None:
        """Write a checkpoint; it is complete when this returns. Raises OSError, and then it is not."""
        body = encode(content)
        self.written_bytes = len(body)
        self._write(self._file(number), _HEAD.pack(_MAGIC, len(body), crc32(body)) + body)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what is needed no longer, and what attempts have left that came to nothing; another time if not now."""
        try:
            needed = {self._file(number) for number in self.numbers()[-_KEPT:]}
            ours = [name for name in self.disk.listdir(str(self.folder)) if name.endswith((_SUFFIX, f"{_SUFFIX}.new"))]
            for path in map(self._path, ours):
                if path not in needed:
                    self.disk.unlink(path)
        except OSError as error:
            log.warning("cannot remove old checkpoints from %s: %s", self.folder, error.strerror)

    def numbers(self) -> list[int]:
        """Return the numbers of the checkpoints that are there, oldest first."""
        names = (Path(name) for name in self.disk.listdir(str(self.folder)))
        return sorted(int(name.stem) for name in names if name.suffix == _SUFFIX and name.stem.isdigit())

    def latest(self) -> Checkpoint | None:
        """Return the last complete checkpoint, None before the first; one that is spoilt is told and passed over."""
        numbers = self.numbers()
        for number in reversed(numbers):
            try:
                found = Checkpoint(number, self._content(number))
                # its name may not be safe, if the run that wrote it did not live to see to it: sinks will count on it
                self.disk.fsync_dir(str(self.folder))
                return found
            except ValueError as error:
                log.warning("checkpoint %s cannot be used: %s", self._file(number), error)
            except OSError as error:
                raise RunError(f"cannot read checkpoint {self._file(number)}: {error.strerror}") from error
        if numbers:
            raise RunError(
                f"no checkpoint in {self.folder} can be read, of {len(numbers)}; "
                "remove the folder to begin anew, or bring back a copy of it"
            )
        return None

    def _content(self, number: int) -> dict[str, Any]:
        data = self._read(self._file(number))
        if len(data) < _HEAD.size:
            raise ValueError(f"it has only {len(data)} bytes")
        magic, length, checksum = _HEAD.unpack_from(data)
        body = memoryview(data)[_HEAD.size :]
        if magic != _MAGIC:
            raise ValueError("it does not begin as a checkpoint does; was it written by another version?")
        if len(body) != length:
            raise ValueError(f"it has {len(body):,} bytes where {length:,} were written")
        if crc32(body) != checksum:
            raise ValueError("its checksum is wrong: some of its bytes are not what was written")
        content: dict[str, Any] = decode(body)
        return content

    def _path(self, name: str) -> str:
        return str(self.folder / name)

    def _file(self, number: int) -> str:
        return self._path(f"{number:09d}{_SUFFIX}")

    def _read(self, path: str) -> bytes:
        fd = self.disk.open(path)
        try:
            parts, at = [], 0
            while part := self.disk.read(fd, _CHUNK, at):
                parts.append(part)
                at += len(part)
            return b"".join(parts)
        finally:
            self.disk.close(fd)

    def _write(self, path: str, data: bytes) -> None:
        """Write a file whole: under another name until its bytes are safe."""
        fresh = f"{path}.new"
        self.disk.mkdir(str(self.folder))  # somebody may have cleaned up
        try:
            self._write_safely(fresh, data)
        except OSError:
            with contextlib.suppress(OSError):
                self.disk.unlink(fresh)  # on a full disk, half a checkpoint each time would not make room
            raise
        self.disk.rename(fresh, path)
        self.disk.fsync_dir(str(self.folder))

    def _write_safely(self, path: str, data: bytes) -> None:
        fd = self.disk.open(path, create=True)
        try:
            self.disk.truncate(fd, 0)
            left = memoryview(data)
            while left:
                left = left[self.disk.write(fd, left) :]
            self.disk.fsync(fd)
        finally:
            self.disk.close(fd)
