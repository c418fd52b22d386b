"""Checkpoints in a folder: each one file, written whole, checked by a checksum when it is read."""

from __future__ import annotations

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
        for old in self.numbers()[:-_KEPT]:
            self.disk.unlink(self._file(old))

    def numbers(self) -> list[int]:
        """Return the numbers of the checkpoints that are there, oldest first."""
        names = (Path(name) for name in self.disk.listdir(str(self.folder)))
        return sorted(int(name.stem) for name in names if name.suffix == _SUFFIX and name.stem.isdigit())

    def latest(self) -> Checkpoint | None:
        """Return the last complete checkpoint, None before the first; one that is spoilt is told and passed over."""
        numbers = self.numbers()
        for number in reversed(numbers):
            try:
                return Checkpoint(number, self._content(number))
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

    def remove(self, number: int) -> None:
        """Remove a checkpoint that nobody may go on from."""
        self.disk.unlink(self._file(number))
        self.disk.fsync_dir(str(self.folder))

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
        fd = self.disk.open(fresh, create=True)
        try:
            self.disk.truncate(fd, 0)
            left = memoryview(data)
            while left:
                left = left[self.disk.write(fd, left) :]
            self.disk.fsync(fd)
        finally:
            self.disk.close(fd)
        self.disk.rename(fresh, path)
        self.disk.fsync_dir(str(self.folder))
