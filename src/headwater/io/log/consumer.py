"""Who reads a log and has to be waited for: what no consumer needs any more is removed, a segment at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from headwater.errors import InputError
from headwater.io.files import explained
from headwater.io.log.disk import Disk, SystemDisk
from headwater.io.log.entry import Entry
from headwater.io.log.high_watermark import HighWatermark
from headwater.io.log.reader import Reader
from headwater.io.log.segment import Segment, list_segments, remove

_ENDING = ".reader"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Consumer:
    """A named reader of a log, in any process; it goes on where it released, also after a crash.

    What is read and not released comes again when the consumer is opened anew. A release is seen by everybody at once, and
    is safe from a power cut after `sync`.
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        *,
        until: Callable[[], int] | None = None,
        disk: Disk | None = None,
        reading: Callable[[Reader], AbstractContextManager[Any]] = nullcontext,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise InputError(f"a consumer's name is letters, digits, '_', '-' and '.'; got {name!r}")
        self._folder, self._disk, self._look = str(folder), disk or SystemDisk(), look
        self.closed = False
        self._reading = reading
        try:
            is_new = name + _ENDING not in self._disk.listdir(self._folder)
            self._mark = HighWatermark(self._disk, f"{self._folder}/{name}{_ENDING}", writing=True)
            if is_new:
                self._disk.fsync_dir(self._folder)
        except OSError as error:
            raise explained(error, self._folder, "keep a position beside the log in") from error
        self.reader = Reader(self._folder, self._mark.value, until=until, disk=self._disk)
        self.needs: Callable[[int], bool] = self._has_to_take  #: tells whether it has still to take an entry
        self._border = -1  # where the second segment begins, if known: before, nothing can be removed

    @property
    def released(self) -> int:
        """The position before which nothing is needed any more."""
        return self._mark.value

    @property
    def position(self) -> int:
        """The position of the entry that comes next."""
        return self.reader.position

    def _has_to_take(self, position: int) -> bool:
        return position >= self.reader.position

    def read(self, most_bytes: int = 2**20) -> list[Entry]:
        """Return the next entries that are safe on disk; see Reader."""
        with self._reading(self.reader):
            return self.reader.read(most_bytes)

    def release(self, position: int) -> None:
        """Release all entries before a position."""
        self.reader.position = max(position, self.reader.position)
        try:
            self._mark.write(position)
            if position < self._border:
                return
            self._look()
            segments = list_segments(self._disk, self._folder)
            if len(segments) > 1 and segments[1].first <= position:
                self._mark.sync()  # a segment must not be gone for who goes back to before it
                segments = reclaim(self._disk, self._folder)
                self._look()
            self._border = segments[1].first if len(segments) > 1 else -1
        except OSError as error:
            raise explained(error, self._folder, "release entries of the log in") from error

    @property
    def is_in_place(self) -> bool:
        """Whether the file that says what is released is still there. Raises OSError."""
        return self._mark.is_in_place

    def restore(self) -> None:
        """Write the position again, where somebody has deleted its file. Raises OSError."""
        if not self._mark.is_in_place:
            self._mark.restore()

    def sync(self) -> None:
        """Have what was released safe on disk, so that it does not come again after a power cut."""
        try:
            self._mark.sync()
        except OSError as error:
            raise explained(error, self._folder, "keep a position beside the log in") from error

    def close(self) -> None:
        """Stop reading."""
        self.closed = True
        self.reader.close()
        self._mark.close()


def release_positions(disk: Disk, folder: str) -> list[int]:
    """Return the position of each consumer before which it needs nothing."""
    positions = []
    for name in disk.listdir(folder):
        if name.endswith(_ENDING):
            mark = HighWatermark(disk, f"{folder}/{name}", writing=False)
            positions.append(mark.value)
            mark.close()
    return positions


def reclaim(disk: Disk, folder: str, *, last_too: bool = False) -> list[Segment]:
    """Remove the segments that no consumer needs; return those that are left.

    The last one with a safe entry stays, for who wants to know what the log said last, unless `last_too`.
    """
    lowest = min(release_positions(disk, folder), default=0)
    synced = _published(disk, folder)
    segments = list_segments(disk, folder)
    while len(segments) > 1 and segments[1].first <= lowest and (last_too or segments[1].first < synced):
        remove(disk, folder, segments[0].first)
        segments = segments[1:]
    return segments


def _published(disk: Disk, folder: str) -> int:
    reader = Reader(folder, disk=disk)
    try:
        return reader.published()
    finally:
        reader.close()
