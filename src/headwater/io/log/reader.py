"""Reading a log from a position on, while it is written: by this process or by another one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headwater.io.files import explained
from headwater.io.log.disk import Disk, SystemDisk
from headwater.io.log.entry import GAP, HEAD, Entry, facts, first_of, next_whole, parse_entry, size_at
from headwater.io.log.high_watermark import HighWatermark
from headwater.io.log.segment import Segment, list_segments

log = logging.getLogger(__name__)

SYNCED = "synced"  #: the file that says how far a log is safe
_WINDOW = 2**18  #: bytes read at once


class Trouble(NamedTuple):
    """Entries that are not there any more, and where they should have been."""

    file: str
    byte: int
    start: int
    stop: int

    def __str__(self) -> str:
        which = f"entry {self.start}" if self.stop == self.start + 1 else f"entries {self.start} to {self.stop - 1}"
        return f"{which} cannot be read: {self.file} is damaged at byte {self.byte:,}"


class Reader:
    """Reads entries in order, each once, up to where the log is safe; it never waits.

    What is damaged is skipped: said in the program's log, counted in `lost` and kept in `troubles`. What was dropped before
    it was read, because the log was full or it grew too old, is counted in `skipped`.
    """

    def __init__(
        self,
        folder: str | Path,
        start: int = 0,
        *,
        until: Callable[[], int] | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._folder, self._disk = str(folder), disk or SystemDisk()
        self.position = start  #: of the entry that comes next
        self.lost = 0  #: entries that were damaged
        self.skipped = 0  #: entries that were dropped on purpose, or released
        self.troubles: list[Trouble] = []
        self._mark: HighWatermark | None = None
        self._until = until or self.published
        self._segment: Segment | None = None
        self._fd = -1
        self._byte = 0
        self._border: int | None = None  # the first position of the next segment, if there is one
        self._window, self._window_at = b"", 0

    def read(self, most_bytes: int = 2**20) -> list[Entry]:
        """Return the next entries, about so many bytes at most and one at least; none if nothing is new."""
        entries: list[Entry] = []
        size = 0
        try:
            stop = self._until()
            while self.position < stop and size < most_bytes:
                entry = self._next(stop)
                if entry is not None:
                    entries.append(entry)
                    size += entry.nbytes
        except OSError as error:
            if entries:
                return entries  # and the next call meets the error
            raise explained(error, self._folder, "read the log in") from error
        return entries

    def seek(self, position: int) -> None:
        """Go on, or back, to a position."""
        self._leave()
        self.position = position

    def stay_among(self, segments: list[Segment]) -> None:
        """Read no more of a segment that is open and not among these."""
        if self._segment is not None and self._segment not in segments:
            self._leave()

    def close(self) -> None:
        """Close what is open."""
        self._leave()
        if self._mark is not None:
            self._mark.close()
            self._mark = None

    def published(self) -> int:
        """Return how far the log is safe, as its writer has written it beside it."""
        if self._mark is not None and not self._mark.is_in_place:  # its writer has had to write it again
            self._mark.close()
            self._mark = None
        if self._mark is None:
            try:
                self._mark = HighWatermark(self._disk, f"{self._folder}/{SYNCED}", writing=False)
            except FileNotFoundError:
                return 0
        return self._mark.current()

    def _next(self, stop: int) -> Entry | None:
        """Take one entry, or one step towards it."""
        if self._segment is None:
            self._enter(stop)
            return None
        match = self._parse()
        if match is None or self._is_beyond(match[0]):
            if not self._is_still_in():
                self._leave()
                return None
            match = self._whole_behind()
            if match is None or self._is_beyond(match[0]) or first_of(match[0]) >= stop:
                self._give_up(stop if self._border is None else min(stop, self._border))
                return None
        entry, end = match
        first = first_of(entry)
        if first > self.position:
            self._lose(first)
        self._byte = end
        if entry.position < self.position:  # on the way to where reading begins
            return None
        if entry.priority != GAP:
            self.position = entry.position + 1
            return entry
        stop = entry.position + 1 if self._border is None else min(entry.position + 1, self._border)
        self.skipped += stop - self.position
        self.position = stop
        return None

    def _is_beyond(self, entry: Entry) -> bool:
        return self._border is not None and first_of(entry) >= self._border

    def _enter(self, stop: int) -> None:
        """Open the segment that has the next position, or the first one that is left."""
        segments = list_segments(self._disk, self._folder)
        at = max((number for number, segment in enumerate(segments) if segment.first <= self.position), default=0)
        if not segments or (segments[at].first >= stop and segments[at].first > self.position):
            self.skipped += stop - self.position
            self.position = stop
            return
        segment = segments[at]
        try:
            self._fd = self._disk.open(f"{self._folder}/{segment.name}")
        except FileNotFoundError:  # removed since it was listed
            return
        if segment.first > self.position:
            self.skipped += segment.first - self.position
            self.position = segment.first
        self._segment, self._byte = segment, 0
        self._border = segments[at + 1].first if at + 1 < len(segments) else None

    def _leave(self) -> None:
        if self._segment is not None:
            self._disk.close(self._fd)
        self._segment, self._window = None, b""

    def _is_still_in(self) -> bool:
        """Look which segments there are; tell whether the next position should be in the one that is open."""
        assert self._segment is not None
        segments = list_segments(self._disk, self._folder)
        if self._segment not in segments:  # dropped, or written anew
            return False
        behind = segments[segments.index(self._segment) + 1 :]
        self._border = behind[0].first if behind else None
        return self._border is None or self.position < self._border

    def _parse(self) -> tuple[Entry, int] | None:
        """Return the entry at the place that was reached, and where it ends."""
        assert self._segment is not None
        at = self._byte - self._window_at
        size = size_at(self._window, at) if at >= 0 else 0
        if not size or at + size > len(self._window):
            self._window = self._disk.read(self._fd, max(_WINDOW, size), self._byte)
            self._window_at, at = self._byte, 0
            size = size_at(self._window, 0)
            if size > len(self._window) and size <= self._disk.size(self._fd) - self._byte:
                self._window = self._disk.read(self._fd, size, self._byte)
        match = parse_entry(self._window, at, self._segment.salt)
        return None if match is None else (match[0], match[1] + self._window_at)

    def _whole_behind(self) -> tuple[Entry, int] | None:
        """Look for the next whole entry behind a damaged place."""
        assert self._segment is not None
        data = self._disk.read(self._fd, self._disk.size(self._fd) - self._byte, self._byte)
        match = next_whole(data, 0, self._segment.salt, self.position)
        return None if match is None else (match[0], match[1] + self._byte)

    def _give_up(self, position: int) -> None:
        """Nothing in this segment is left to read before a position."""
        if position > self.position:
            self._lose(position)
            self.position = position

    def _lose(self, stop: int) -> None:
        assert self._segment is not None
        trouble = Trouble(f"{self._folder}/{self._segment.name}", self._byte, self.position, stop)
        self.troubles.append(trouble)
        self.lost += stop - self.position
        log.warning("log: %s", trouble)


def records_in(folder: str | Path, is_needed: Callable[[int], bool], *, disk: Disk | None = None) -> int:
    """Return how many records a log holds in the entries at positions that are needed, by the heads of its entries."""
    disk, folder = disk or SystemDisk(), str(folder)
    segments = list_segments(disk, folder)
    count = 0
    for number, segment in enumerate(segments):
        border = segments[number + 1].first if number + 1 < len(segments) else None
        fd, at = disk.open(f"{folder}/{segment.name}"), 0
        while size := size_at(head := disk.read(fd, HEAD.size, at), 0):
            position, priority, records = facts(head)
            count += records if priority != GAP and is_needed(position) and (border is None or position < border) else 0
            at += size
        disk.close(fd)
    return count
