"""An entry of a log as bytes: a head with a checksum, then what was appended.

The checksum begins with the salt of its segment, which is in the file's name. So bytes that once were an entry elsewhere,
and lie here inside another one, are never taken for an entry of this file.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from zlib import crc32

#: checksum of all that follows, sign, priority, bytes of data, records, entries before it that were not safe, position, time
HEAD = Struct("<I3sBIIIQq")
GAP = 255  #: the priority of an entry that stands for others, which were dropped on purpose
_SIGN = b"\xb5L1"
_FARTHEST = 2**40  #: positions that a damaged place can hide
MOST_BYTES = 2**32 - 1  #: of one entry


class Entry(NamedTuple):
    """What was appended once."""

    position: int  #: its number; the next one has the next
    created_ns: int
    priority: int
    records: int
    data: bytes
    unsafe: int = 0  #: how many entries before it were not known to be safe on disk when it was written

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in a segment."""
        return HEAD.size + len(self.data)

    @property
    def known_safe(self) -> int:
        """The position up to which all was safe on disk when this was written."""
        return self.position - self.unsafe


def pack_entry(entry: Entry, salt: int) -> bytes:
    """Return an entry as bytes."""
    position, created_ns, priority, records, data, unsafe = entry
    head = HEAD.pack(0, _SIGN, priority, len(data), records, unsafe, position, created_ns)
    checksum = crc32(data, crc32(memoryview(head)[4:], salt))
    return checksum.to_bytes(4, "little") + head[4:] + data


def size_at(data: bytes, at: int) -> int:
    """Return how many bytes the entry takes that begins at a place, by its own word; 0 if none begins there."""
    if at + HEAD.size > len(data) or data[at + 4 : at + 7] != _SIGN:
        return 0
    return HEAD.size + int(HEAD.unpack_from(data, at)[3])


def facts(head: bytes) -> tuple[int, int, int]:
    """Return position, priority and number of records, by an entry's head."""
    _, _, priority, _, records, _, position, _ = HEAD.unpack(head)
    return position, priority, records


def parse_entry(data: bytes, at: int, salt: int) -> tuple[Entry, int] | None:
    """Return the entry at a place and where it ends; None if there is no whole one."""
    start = at + HEAD.size
    if start > len(data):
        return None
    checksum, sign, priority, size, records, unsafe, position, created_ns = HEAD.unpack_from(data, at)
    end = start + size
    if sign != _SIGN or end > len(data) or crc32(memoryview(data)[at + 4 : end], salt) != checksum:
        return None
    return Entry(position, created_ns, priority, records, data[start:end], unsafe), end


def next_whole(data: bytes, at: int, salt: int, least: int) -> tuple[Entry, int] | None:
    """Return the first whole entry at or behind a place, of at least a position, and where it ends."""
    while (sign := data.find(_SIGN, at + 4)) >= 0:
        at = sign - 4
        if at + HEAD.size <= len(data) and least <= HEAD.unpack_from(data, at)[6] < least + _FARTHEST:
            match = parse_entry(data, at, salt)
            if match is not None:
                return match
        at += 1
    return None


def gap(start: int, stop: int, records: int, created_ns: int) -> Entry:
    """Return what stands for the entries from one position up to another."""
    return Entry(stop - 1, created_ns, GAP, records, start.to_bytes(8, "little"))


def first_of(entry: Entry) -> int:
    """Return the first position that an entry stands for: its own, unless it is a gap."""
    return int.from_bytes(entry.data, "little") if entry.priority == GAP else entry.position
