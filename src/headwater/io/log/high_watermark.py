"""A number on disk that only grows: how far a log is safe, how far a consumer has come."""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from headwater.io.log.disk import Disk

_SLOT = Struct("<QI")
_APART = 4096  #: bytes between the two slots, so that one torn write cannot harm both


class HighWatermark:
    """The file of a number. It is in two places, and never written where the last one is that is safe."""

    def __init__(self, disk: Disk, path: str, *, writing: bool) -> None:
        self._disk, self._path = disk, path
        self._fd = disk.open(path, create=writing)
        self._slots = [self._read_slot(0), self._read_slot(1)]
        self.safe = 0  #: what is known to be on disk after a power cut
        self._safe_slot: int | None = None if self.value else 1  # None while nobody knows
        self._in_doubt = self.value > 0  # bytes whose fsync failed stay readable, and are not written by the next one

    @property
    def value(self) -> int:
        """The number as it was last written here."""
        return max(self._slots)

    def current(self) -> int:
        """Read the number again: another process may write it."""
        self._slots = [max(self._slots[0], self._read_slot(0)), max(self._slots[1], self._read_slot(1))]
        return self.value

    def write(self, value: int) -> None:
        """Write a larger number; readers see it, and `sync` makes it safe. A smaller one changes nothing."""
        if value <= self.value:
            return
        if self._safe_slot is None:
            self.sync()
        assert self._safe_slot is not None
        self._write_slot(1 - self._safe_slot, value)

    def sync(self) -> None:
        """Have the number safe on disk."""
        value = self.value
        if value <= self.safe:
            return
        slot = self._slots.index(value)
        if self._in_doubt:
            self._write_slot(slot, value)
        self._in_doubt = True
        self._disk.fsync(self._fd)
        self._in_doubt, self.safe, self._safe_slot = False, value, slot

    @property
    def is_in_place(self) -> bool:
        """Whether its file is still there, and nobody has deleted it."""
        return self._disk.is_at(self._fd, self._path)

    def restore(self) -> None:
        """Write the number once more, into a new file: somebody has deleted the one that it was in."""
        before, self._fd = self._fd, self._disk.open(self._path, create=True)
        try:
            self._write_slot(slot := self._slots.index(self.value), self.value)
            self._disk.fsync(self._fd)
        except OSError:
            self._disk.close(self._fd)
            self._fd = before
            raise
        self._disk.close(before)
        self._in_doubt, self.safe, self._safe_slot = False, self.value, slot

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._fd)

    def _write_slot(self, slot: int, value: int) -> None:
        form = value.to_bytes(8, "little")
        self._disk.write_at(self._fd, _SLOT.pack(value, crc32(form)), slot * _APART)
        self._slots[slot] = value

    def _read_slot(self, slot: int) -> int:
        data = self._disk.read(self._fd, _SLOT.size, slot * _APART)
        if len(data) < _SLOT.size:
            return 0
        value, checksum = _SLOT.unpack(data)
        return int(value) if crc32(data[:8]) == checksum else 0
