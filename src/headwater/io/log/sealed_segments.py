"""The segments of a log that are not appended to any more: how large they are, and how bounds drop what is in them.

They are held open, so that what somebody deletes under a log can be written again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from zlib import crc32

from headwater.io.log.bounds import IsNeeded, thin
from headwater.io.log.disk import Disk
from headwater.io.log.entry import GAP, Entry, first_of, pack_entry
from headwater.io.log.recovery import whole
from headwater.io.log.segment import FRESH, Segment, copy, generation, list_segments, remove

log = logging.getLogger(__name__)

_MOST_OPEN = 128  #: of larger logs, the segments beyond are opened when they are read


class SealedSegments:
    """All segments but the last, in order. Its methods raise OSError."""

    def __init__(self, disk: Disk, folder: str, *, held_open: bool) -> None:
        self._disk, self._folder = disk, folder
        self._most_open = _MOST_OPEN if held_open else 0
        self._fds: dict[Segment, int] = {}
        self.segments: list[Segment] = []
        self.nbytes = 0
        self._current = Segment(0, 0, 0)
        self._sizes: dict[Segment, int] = {}
        self._priorities: dict[Segment, dict[int, int]] = {}  # of each, the last position that has it
        self._made_ns: dict[Segment, int] = {}  # when the last entry was made
        self._names_in_doubt = False  # whether files were written again whose names the folder may not have for good

    def look(self, current: Segment, released_before: float) -> None:
        """See which there are: others remove some that lie before `released_before`, and the current one moves on.

        One that is not released and not there was deleted by somebody, and is written again.
        """
        self._current = current
        there = {segment for segment in list_segments(self._disk, self._folder) if segment < current}
        for segment in there - self._sizes.keys():
            with suppress(FileNotFoundError):  # removed meanwhile
                self._sizes[segment] = self._size(segment)
        self._count()
        missing = [segment for segment in self.segments if segment not in there]
        for segment in missing:
            if self._border(segment) > released_before and segment in self._fds:
                log.warning("log: %s/%s was deleted, and is written again", self._folder, segment.name)
                self._names_in_doubt = True
                copy(self._disk, self._folder, segment, self._fds[segment], self._sizes[segment])
            else:
                self.forget(segment)
        if self._names_in_doubt:  # also where that failed the last time: the files are found there now
            self._disk.fsync_dir(self._folder)
            self._names_in_doubt = False

    def take(self, segment: Segment, fd: int) -> None:
        """Take over a segment that is not appended to any more, with its open file."""
        self.forget(segment)
        self._sizes[segment] = self._disk.size(fd)
        if len(self._fds) < self._most_open:
            self._fds[segment] = fd
        else:
            self._disk.close(fd)
        self._count()

    def close(self) -> None:
        """Close what is open."""
        for fd in self._fds.values():
            self._disk.close(fd)
        self._fds.clear()

    def entries(self, segment: Segment) -> list[Entry]:
        """Return the whole entries of a segment, up to where the next begins; those that are damaged are left out."""
        data = self._read(segment, self._sizes[segment])
        border = self._border(segment)
        return [entry for entry, _, _ in whole(data, segment.salt, segment.first) if first_of(entry) < border]

    def made_ns(self, segment: Segment) -> int:
        """Return when the last entry of a segment was made."""
        if segment not in self._made_ns:
            self._made_ns[segment] = max((entry.created_ns for entry in self.entries(segment)), default=0)
        return self._made_ns[segment]

    def drop(self, segment: Segment, is_needed: IsNeeded) -> int:
        """Remove a segment; return how many records go with it that somebody had still to take."""
        missed = sum(e.records for e in self.entries(segment) if is_needed(e.position) and e.priority != GAP)
        self.remove(segment)
        return missed

    def remove(self, segment: Segment) -> None:
        """Remove a segment."""
        remove(self._disk, self._folder, segment.first)
        self.forget(segment)

    def forget(self, segment: Segment) -> None:
        """Look at a segment anew when it is asked for."""
        for cache in (self._sizes, self._priorities, self._made_ns):
            cache.pop(segment, None)
        if segment in self._fds:
            self._disk.close(self._fds.pop(segment))
        self._count()

    def lowest(self, is_needed: IsNeeded) -> int | None:
        """Return the least priority among entries that somebody has still to take; None if there is none."""
        priorities = [
            priority for s in self.segments for priority, last in self._known_priorities(s).items() if is_needed(last)
        ]
        return min(priorities, default=None)

    def thin(self, priority: int | None, is_needed: IsNeeded) -> int:
        """Take the entries of a priority out of the first segment that has some; return how many records that costs.

        With None, there are none left that anybody needs: the first segment goes.
        """
        if priority is None:
            self.remove(self.segments[0])
            return 0
        segment = next(s for s in self.segments if is_needed(self._known_priorities(s).get(priority, -1)))
        entries, dropped = thin(self.entries(segment), priority, is_needed)
        at = self.segments.index(segment)
        if all(entry.priority == GAP for entry in entries):
            if at:  # the one before it says what was here, so that nothing but gaps does not pile up
                before = self.segments[at - 1]
                self._rewrite(before, thin([*self.entries(before), *entries], -1, lambda position: True)[0])
            self.remove(segment)
        else:
            self._rewrite(segment, entries)
        return dropped

    def _rewrite(self, segment: Segment, entries: list[Entry]) -> None:
        """Write a segment anew; it takes the place of the old one when it is safe."""
        disk, number = self._disk, generation(self._disk, self._folder, segment.first)
        fresh = Segment(segment.first, number, crc32(segment.name.encode(), number))
        path = f"{self._folder}/{fresh.name}"
        form = b"".join(pack_entry(entry, fresh.salt) for entry in entries)
        fd = disk.open(path + FRESH, create=True)
        try:
            view = memoryview(form)
            while view:
                view = view[disk.write(fd, view) :]
            disk.fsync(fd)
            disk.rename(path + FRESH, path)
        except OSError:
            disk.close(fd)
            with suppress(OSError):
                disk.unlink(path + FRESH)
            raise
        self._fds[fresh], self._sizes[fresh] = fd, len(form)
        disk.fsync_dir(self._folder)
        self.forget(segment)
        remove(disk, self._folder, fresh.first, before=fresh)

    def _known_priorities(self, segment: Segment) -> dict[int, int]:
        if segment not in self._priorities:
            self._priorities[segment] = {
                entry.priority: entry.position for entry in self.entries(segment) if entry.priority != GAP
            }
        return self._priorities[segment]

    def _border(self, segment: Segment) -> int:
        """Return where the next segment begins."""
        return [*self.segments, self._current][self.segments.index(segment) + 1].first

    def _read(self, segment: Segment, size: int) -> bytes:
        with self._open(segment) as fd:
            return self._disk.read(fd, size, 0)

    def _size(self, segment: Segment) -> int:
        with self._open(segment) as fd:
            return self._disk.size(fd)

    @contextmanager
    def _open(self, segment: Segment) -> Iterator[int]:
        fd = self._fds.get(segment)
        if fd is not None:
            yield fd
            return
        fd = self._disk.open(f"{self._folder}/{segment.name}")
        if len(self._fds) < self._most_open:
            self._fds[segment] = fd
            yield fd
            return
        try:
            yield fd
        finally:
            self._disk.close(fd)

    def _count(self) -> None:
        self.segments = sorted(self._sizes)
        self.nbytes = sum(self._sizes.values())
