"""The files of a log. A segment's name says its first position, how often it was written anew, and its salt."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from headwater.io.log.disk import Disk

FRESH = ".new"  #: ends the name of a segment that is being written as a whole
_NAME = re.compile(r"(\d{20})-(\d{4})-([0-9a-f]{8})\.log")


class Segment(NamedTuple):
    """A file of entries. It ends where the next one begins: what it holds beyond that counts for nothing."""

    first: int
    generation: int
    salt: int

    @property
    def name(self) -> str:
        """The file's name: in the order of names, segments are in the order of positions."""
        return f"{self.first:020d}-{self.generation:04d}-{self.salt:08x}.log"


def list_segments(disk: Disk, folder: str) -> list[Segment]:
    """Return the segments of a folder in order, without those that another has taken the place of."""
    return list({segment.first: segment for segment in _all(disk, folder)}.values())


def remove(disk: Disk, folder: str, first: int, before: Segment | None = None) -> None:
    """Remove the segment that begins at a position, or those that it has taken the place of, if it is given as `before`.

    Each is removed for good before the next: no later one may be gone while an earlier one is back after a crash.
    """
    for segment in _all(disk, folder):
        if segment.first == first and (before is None or segment < before):
            with suppress(FileNotFoundError):  # another process was faster
                disk.unlink(f"{folder}/{segment.name}")
            disk.fsync_dir(folder)


def copy(disk: Disk, folder: str, segment: Segment, fd: int, size: int) -> None:
    """Have the first bytes of an open file be a segment of a folder: somebody has deleted the one that they were in."""
    write_whole(disk, f"{folder}/{segment.name}", disk.read(fd, size, 0))


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Write a file that has its name when its bytes are safe; the name is safe with the folder."""
    fd = disk.open(path + FRESH, create=True)
    try:
        disk.truncate(fd, 0)
        view = memoryview(data)
        while view:
            view = view[disk.write(fd, view) :]
        disk.fsync(fd)
    finally:
        disk.close(fd)
    disk.rename(path + FRESH, path)


def generation(disk: Disk, folder: str, first: int) -> int:
    """Return the number for a new segment that begins at a position, larger than that of any which was there before."""
    segments = (_segment_named(name.removesuffix(FRESH)) for name in disk.listdir(folder))
    return max((segment.generation + 1 for segment in segments if segment and segment.first == first), default=0)


def _all(disk: Disk, folder: str) -> list[Segment]:
    return sorted(filter(None, map(_segment_named, disk.listdir(folder))))


@lru_cache(1024)
def _segment_named(name: str) -> Segment | None:
    match = _NAME.fullmatch(name)
    return Segment(int(match[1]), int(match[2]), int(match[3], 16)) if match else None


def leftovers(disk: Disk, folder: str) -> list[str]:
    """Return the names of segments that a crash has left half made."""
    return [name for name in disk.listdir(folder) if name.endswith(FRESH)]
