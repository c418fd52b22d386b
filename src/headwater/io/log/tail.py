"""The end of a log: the segment that entries are appended to, and those of them that are not safe yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from headwater.io.log.disk import Disk
from headwater.io.log.entry import Entry, pack_entry
from headwater.io.log.recovery import SegmentContents, examine
from headwater.io.log.segment import FRESH, Segment, copy, generation, remove


class Tail:
    """Where a log grows. It knows no locks and no bounds; its methods raise OSError and then have added nothing.

    A file that once failed is not trusted any more: the tail is then in doubt, and goes on in a new one, with all that was
    not safe written again. For bytes whose fsync failed can still be read, and are not written by the next fsync.
    """

    def __init__(
        self, disk: Disk, folder: str, clock: Callable[[], int], seal: Callable[[Segment, int], None], *, durable: bool
    ) -> None:
        """`seal` takes a segment over that is not appended to any more, with its open file."""
        self._disk, self._folder, self._clock, self._seal, self._durable = disk, folder, clock, seal, durable
        self.segment = Segment(0, 0, 0)
        self.end = 0  #: the position that the next entry gets
        self.synced = 0  #: all before this position is safe
        self.size = 0  #: bytes of the segment
        self.began_ns = 0  #: when the first entry of the segment was made
        self.in_doubt = False
        self.fd = -1
        self._waiting: deque[Entry] = deque()  # not safe yet: kept, to be written again if the disk fails
        self._safe_size = 0  # bytes of the segment that are safe

    def start(self, position: int) -> None:
        """Begin a log, or go on with one of which no file is left."""
        self.end = self.synced = position
        self.begin()

    def resume(self, last: Segment, known_safe: int) -> SegmentContents:
        """Go on behind the last segment, after a crash or a clean end; return what was found in it."""
        fd = self._disk.open(f"{self._folder}/{last.name}", create=True)
        self._use(fd, last, self._disk.size(fd))
        contents = examine(self._disk.read(fd, self.size, 0), last.salt, last.first, known_safe)
        self.end, self.synced = contents.next, contents.safe
        self._waiting.extend(entry for entry in contents.entries if entry.position >= contents.safe)
        self._safe_size = contents.end - sum(entry.nbytes for entry in self._waiting)
        if contents.entries:
            self.began_ns = contents.entries[0].created_ns
        if self._waiting or contents.cut_bytes or contents.lost:
            self.begin()  # what is readable and was not said to be safe may not be on the disk
        return contents

    def put(self, data: bytes, records: int, priority: int, created_ns: int) -> int:
        """Append an entry; return its position."""
        entry = Entry(self.end, created_ns, priority, records, data, self.end - self.synced)
        form = pack_entry(entry, self.segment.salt)
        try:
            self._write(self.fd, form)
        except OSError:
            self._take_back()
            raise
        if not self.size:
            self.began_ns = created_ns
        self.size += len(form)
        self.end += 1
        if self._durable:
            self._waiting.append(entry)
        else:
            self.synced, self._safe_size = self.end, self.size
        return entry.position

    def safe(self, position: int) -> None:
        """Take note that all before a position is on disk."""
        self.synced = max(self.synced, position)
        while self._waiting and self._waiting[0].position < position:
            self._safe_size += self._waiting.popleft().nbytes

    def begin(self) -> None:
        """Go on in a new segment: it has its name when all that was not safe yet is safe in it."""
        self.in_doubt = True  # if this fails, nothing more goes to the old one: a new one may be there in part
        disk, first = self._disk, self.synced
        number = generation(disk, self._folder, first)
        segment = Segment(first, number, crc32(b"%d %d %d" % (self._clock(), first, number)))
        path = f"{self._folder}/{segment.name}"
        fd = disk.open(path + FRESH, create=True)
        try:
            form = b"".join(pack_entry(entry, segment.salt) for entry in self._waiting)
            self._write(fd, form)
            if self._durable:
                disk.fsync(fd)
            disk.rename(path + FRESH, path)
            if self._durable:
                disk.fsync_dir(self._folder)
        except OSError:
            disk.close(fd)
            with suppress(OSError):
                disk.unlink(path + FRESH)
            raise
        if self._waiting:
            self.began_ns = self._waiting[0].created_ns
        with suppress(OSError):  # what has moved takes room twice until it is removed
            if self.fd >= 0 and self.size > self._safe_size:
                disk.truncate(self.fd, self._safe_size)
            remove(disk, self._folder, first, before=segment)
        if self.fd >= 0 and self.segment.first < first:
            self._seal(self.segment, self.fd)
            self.fd = -1
        self._use(fd, segment, len(form))
        self._safe_size = 0
        self.safe(self.end)
        self.in_doubt = False

    @property
    def is_in_place(self) -> bool:
        """Whether the segment is still there, and nobody has deleted it."""
        return self._disk.is_at(self.fd, f"{self._folder}/{self.segment.name}")

    def restore(self) -> None:
        """Write the segment that somebody has deleted once more, as far as it was safe, and go on in a new one."""
        self.in_doubt = True
        if self._safe_size:
            copy(self._disk, self._folder, self.segment, self.fd, self._safe_size)
        self.begin()

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            self._disk.close(self.fd)
            self.fd = -1

    def _use(self, fd: int, segment: Segment, size: int) -> None:
        self.close()
        self.fd, self.segment, self.size = fd, segment, size

    def _write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._disk.write(fd, view) :]

    def _take_back(self) -> None:
        """Cut off what was written of an entry; where that fails, the segment ends here."""
        try:
            self._disk.truncate(self.fd, self.size)
        except OSError:
            self.in_doubt = True
