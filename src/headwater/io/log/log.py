"""The one durable log: who appends to it, makes it safe, and bounds it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from threading import Condition, Lock, Thread

from headwater.clock import now_ns
from headwater.errors import InputError
from headwater.io.files import explained, is_full
from headwater.io.log.bounds import Bounds
from headwater.io.log.consumer import Consumer, reclaim, release_positions
from headwater.io.log.disk import Disk, SystemDisk
from headwater.io.log.entry import HEAD, MOST_BYTES
from headwater.io.log.folder import LogFolder
from headwater.io.log.high_watermark import HighWatermark
from headwater.io.log.reader import SYNCED, Reader, Trouble
from headwater.io.log.recovery import SegmentContents
from headwater.io.log.sealed_segments import SealedSegments
from headwater.io.log.segment import Segment, leftovers, list_segments
from headwater.io.log.tail import Tail

log = logging.getLogger(__name__)

_SEGMENT_BYTES = 16 * 2**20
_TIMES = 10  #: that a folder may be deleted while it is looked at
_LOOK_S = 1.0  #: between two looks whether a log to which nothing is appended is still there
_SEGMENTS = 8  #: into which a bound is divided at least, so that what is released or dropped makes room soon


class Log:
    """A folder of entries, appended by one process at a time and read by any number.

    `append` takes bytes and returns the entry's position. What was appended before a `sync` that returned is there after any
    crash; `synced` says how far that is. With `sync_every_s` a thread sees to it. Without `durable` nothing is made safe:
    for what need not outlive the process. Safe for several threads.

    After an error the log is as it was before: it can be read, and appended to once the cause is gone. What a disk may have
    lost when it failed is written again, elsewhere.
    """

    def __init__(
        self,
        folder: str | Path,
        bounds: Bounds | None = None,
        *,
        segment_bytes: int = _SEGMENT_BYTES,
        sync_every_s: float | None = None,
        durable: bool = True,
        disk: Disk | None = None,
        clock: Callable[[], int] = now_ns,
        first: int = 0,
    ) -> None:
        """`first` is the position at which a log begins that is new: one that goes on elsewhere keeps its positions."""
        self._folder, self._disk, self._clock, self._first = str(folder), disk or SystemDisk(), clock, first
        self.bounds = bounds or Bounds()
        self._opened_ns = clock()
        most = self.bounds.nbytes
        self._segment_bytes = segment_bytes if most is None else min(segment_bytes, most // _SEGMENTS)
        self.lost = 0  #: entries that were safe and are damaged, as far as was seen when the log was opened
        self.troubles: list[Trouble] = []  #: where these were
        self.cut_bytes = 0  #: what a crash had cut short, taken away when the log was opened
        self.dropped: Counter[str] = Counter()  #: records that the bounds cost, by reason
        self._consumers: list[Consumer] = []
        self._sealed = SealedSegments(self._disk, self._folder, held_open=durable)
        self._tail = Tail(self._disk, self._folder, clock, self._sealed.take, durable=durable)
        self._durable = durable
        self._mark: HighWatermark | None = None
        self._log_folder = LogFolder(self._disk, self._folder)
        self._closed = False
        self._syncing = Lock()  # one at a time makes safe, or changes the current segment; taken before the other lock
        self._condition = Condition()
        try:
            with self._explained("keep a log in"), self._condition:
                self._open()
        except InputError:
            self._let_go()
            raise
        self._thread: Thread | None = None
        if sync_every_s is not None:
            self._thread = Thread(target=self._sync_on, args=(sync_every_s,), name="headwater-log", daemon=True)
            self._thread.start()

    @property
    def first(self) -> int:
        """The position of the first entry that is still there, or would be."""
        return min([*self._sealed.segments, self._tail.segment]).first

    @property
    def end(self) -> int:
        """The position that the next entry gets."""
        return self._tail.end

    @property
    def synced(self) -> int:
        """The position before which all is safe on disk."""
        return self._tail.synced

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return self._sealed.nbytes + self._tail.size

    def append(self, data: bytes, *, records: int = 1, priority: int = 0, created_ns: int | None = None) -> int | None:
        """Add an entry and return its position; None if the bounds dropped it at once, which is counted.

        Raises InputError, and adds nothing, where there is no room for it or the disk fails.
        """
        size = HEAD.size + len(data)
        if self.is_too_large(len(data)):
            raise self._no_room(size)
        created_ns = self._clock() if created_ns is None else created_ns
        full: OSError | None = None
        with self._explained("append to the log in"):
            while True:
                with self._condition:
                    if self._closed:
                        raise InputError(f"the log in {self._folder} is closed")
                    if self._fits(size):
                        try:
                            position = self._tail.put(data, records, priority, created_ns)
                        except OSError as error:
                            if not is_full(error):
                                raise
                            full = error
                        else:
                            self._condition.notify_all()  # who makes it safe
                            return position
                if full is not None:
                    self._give_back(full)
                    full = None
                    continue
                with self._syncing, self._condition:
                    if not self._make_room(size, priority):
                        self.dropped["log full"] += records
                        return None

    def is_too_large(self, size: int) -> bool:
        """Tell whether so many bytes never have room, however little there is."""
        most = MOST_BYTES if self.bounds.nbytes is None else min(MOST_BYTES, self.bounds.nbytes)
        return HEAD.size + size > most

    def is_too_old(self, created_ns: int) -> bool:
        """Tell whether an entry that was made at a moment is older than the bounds allow."""
        return self.bounds.is_too_old(created_ns, self._clock(), self._opened_ns)

    def sync(self) -> int:
        """Have all that was appended safe on disk; return `synced`. Those who come meanwhile share the next fsync."""
        end = self.end
        with self._syncing:
            if self.synced < end:
                with self._explained(f"have {end - self.synced:,} entries safe in the log in"):
                    self._sync()
        return self.synced

    def wait(self, position: int, timeout_s: float | None = None) -> bool:
        """Wait until all before a position is safe, where a thread sees to it; False if it is not in time."""
        with self._condition:
            self._condition.wait_for(lambda: self.synced >= position or self._closed, timeout_s)
            return self.synced >= position

    def reader(self, start: int = 0, *, unsafe: bool = False) -> Reader:
        """Return a reader, from a position on, of what is safe; with `unsafe`, of all that was appended."""
        return Reader(self._folder, start, until=lambda: self.end if unsafe else self.synced, disk=self._disk)

    def consumer(self, name: str) -> Consumer:
        """Return a named reader that the log waits for: what it has not released is not removed, unless bounds drop it."""
        consumer = Consumer(
            self._folder,
            name,
            until=lambda: self.synced,
            disk=self._disk,
            reading=self._nothing_dropped,
            look=self.look_again,
        )
        self._consumers.append(consumer)
        return consumer

    def note(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return what a small file beside the log says; where there is none, what `make` returns is written into it."""
        with self._explained("keep a note beside the log in"), self._condition:
            return self._log_folder.note(name, make)

    def look_again(self) -> None:
        """See what is left on disk: a consumer in another process may have released some.

        What somebody has deleted that is still needed is written again; whoever syncs has that done too.
        """
        with self._explained("look at the log in"):
            for _ in range(_TIMES):
                with suppress(FileNotFoundError):  # deleted just when it had been found in place
                    self._stay_and_look()
                    return
            self._stay_and_look()

    def expire(self) -> None:
        """Drop the segments in which all entries are too old; appending does so too."""
        with self._explained("drop old entries of the log in"), self._syncing, self._condition:
            self._expire()

    def clear(self) -> None:
        """Forget all entries, and give their disk back."""
        with self._explained("clear the log in"), self._syncing, self._condition:
            self._tail.safe(self.end)
            self._roll()
            for segment in list(self._sealed.segments):
                self._sealed.remove(segment)

    def close(self) -> None:
        """Have all safe on disk, and leave; raises InputError if that cannot be done."""
        if self._closed:
            return
        try:
            self.sync()
            if self._mark is not None:
                with suppress(OSError):  # one that is behind does no harm
                    self._mark.sync()
        finally:
            with self._condition:
                self._closed = True
                self._condition.notify_all()
            if self._thread is not None:
                self._thread.join()
            with self._syncing, self._condition:  # a consumer may be about to look whether all is in its place
                self._let_go()

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        disk, folder = self._disk, self._folder
        self._log_folder.take()
        for name in leftovers(disk, folder):
            disk.unlink(f"{folder}/{name}")
        self._mark = HighWatermark(disk, f"{folder}/{SYNCED}", writing=True)
        disk.fsync_dir(folder)
        known_safe = max(self._mark.value, *release_positions(disk, folder), 0)
        segments = list_segments(disk, folder)
        if segments:
            self._report(segments[-1], self._tail.resume(segments[-1], known_safe))
        else:
            if known_safe:
                log.warning("log: no entries are left in %s, which had %d; was it copied in part?", folder, known_safe)
            self._tail.start(max(known_safe, self._first))
        self._look()
        self._publish()

    def _report(self, segment: Segment, contents: SegmentContents) -> None:
        file = f"{self._folder}/{segment.name}"
        for hole in contents.lost:
            self.troubles.append(Trouble(file, *hole))
            self.lost += hole.stop - hole.start
            log.warning("log: %s", self.troubles[-1])
        self.cut_bytes = contents.cut_bytes
        if contents.cut_bytes:
            log.warning(
                "log: the last %d bytes of %s were cut short by a crash, or damaged before they were safe, and are taken "
                "away: %d whole entries, and part of one; nobody was told that they were safe",
                contents.cut_bytes,
                file,
                contents.cut_entries,
            )

    def _let_go(self) -> None:
        self._tail.close()
        self._sealed.close()
        self._log_folder.let_go()
        if self._mark is not None:
            self._mark.close()
            self._mark = None

    # -- making safe --------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Have all safe that was appended by now; others append meanwhile."""
        with self._condition:
            if self._tail.in_doubt:
                self._begin()
                return
            end, fd = self.end, self._tail.fd
        try:
            self._disk.fsync(fd)
        except OSError:
            self._tail.in_doubt = True
            raise
        with self._condition:
            if self._is_in_place():
                self._tail.safe(end)
                self._publish()
            else:
                self._restore()

    def _publish(self) -> None:
        """Let readers in other processes know how far the log is safe."""
        assert self._mark is not None
        try:
            self._mark.write(self.synced)
        except OSError as error:
            log.warning("log: %s", explained(error, self._folder, "say how far it is safe to who reads the log in"))
        self._condition.notify_all()

    def _sync_on(self, every_s: float) -> None:
        while True:
            with self._condition:
                is_new = self._condition.wait_for(lambda: self._closed or self.synced < self.end, _LOOK_S)
                self._condition.wait_for(lambda: self._closed, every_s)
                if self._closed:
                    return
            try:
                self.sync() if is_new else self.look_again()
            except InputError as error:
                log.warning("%s", error)
                with self._condition:
                    self._condition.wait_for(lambda: self._closed, 1.0)

    # -- staying there ------------------------------------------------------------------------------------------------

    def _stay(self) -> None:
        """Have all files where they were."""
        with self._condition:
            if self._closed or self._is_in_place():
                return
        with self._syncing, self._condition:
            if not self._closed and not self._is_in_place():  # another thread may have been faster
                self._restore()

    def _stay_and_look(self) -> None:
        self._stay()
        with self._condition:
            if not self._closed:
                self._look()

    def _look(self) -> None:
        waited_for = [consumer.released for consumer in self._consumers if not consumer.closed]
        self._sealed.look(self._tail.segment, min(waited_for, default=inf))

    def _is_in_place(self) -> bool:
        """Tell whether all files that are written are where they were: bytes in deleted ones are safe for nobody."""
        if not self._durable or self._mark is None:
            return True
        consumers = all(consumer.closed or consumer.is_in_place for consumer in self._consumers)
        return self._tail.is_in_place and self._mark.is_in_place and self._log_folder.is_there and consumers

    def _restore(self) -> None:
        """Write again what somebody has deleted, all that was safe before, and what is not yet."""
        assert self._mark is not None
        log.warning("log: %s was deleted or moved away; all that waits in it is written there again", self._folder)
        self._log_folder.restore()
        for consumer in self._consumers:
            if not consumer.closed:
                consumer.restore()
        self._mark.restore()
        self._sealed.look(self._tail.segment, -1)
        self._tail.restore()
        self._look()
        self._publish()

    # -- room ---------------------------------------------------------------------------------------------------------

    def _fits(self, size: int) -> bool:
        tail, most = self._tail, self.bounds.nbytes
        return (
            not tail.in_doubt
            and (not tail.size or tail.size + size <= self._segment_bytes)
            and (most is None or self.nbytes + size <= most)
            and (self.bounds.age_s is None or not self._is_aged())
        )

    def _make_room(self, size: int, priority: int) -> bool:
        """Make room for an entry, which may go to a new segment; False if it is the one to be dropped."""
        tail = self._tail
        if tail.in_doubt:
            self._begin()
        elif tail.size and (tail.size + size > self._segment_bytes or self._is_aged()):
            self._roll()
        self._expire()
        most = self.bounds.nbytes
        if most is None or self.nbytes + size <= most:
            return True
        self._free()
        while self.nbytes + size > most:
            if self.bounds.full == "hold":
                raise self._no_room(size)
            if not self._sealed.segments:
                self._roll()
            if self.bounds.full == "drop oldest":
                self.dropped["log full"] += self._sealed.drop(self._sealed.segments[0], self._is_needed)
            else:
                lowest = self._sealed.lowest(self._is_needed)
                if lowest is not None and lowest > priority:
                    return False
                self.dropped["log full"] += self._sealed.thin(lowest, self._is_needed)
        return True

    def _free(self) -> None:
        """Remove all that is released, also where a log that has room keeps it."""
        if self._tail.size and self.end <= min(release_positions(self._disk, self._folder), default=0):
            self._roll()
        for consumer in self._consumers:
            consumer.sync()
        reclaim(self._disk, self._folder, last_too=True)
        self._look()

    def _give_back(self, full: OSError) -> None:
        """Make room on a disk that is full with what nobody needs any more; raises `full` if there is nothing."""
        with self._syncing, self._condition:
            before = self.nbytes
            self._free()
            if self.nbytes >= before:
                raise full

    def _roll(self) -> None:
        """Go on in a new segment; the old one is safe."""
        try:
            if self.synced < self.end:
                self._disk.fsync(self._tail.fd)
                if self._is_in_place():
                    self._tail.safe(self.end)
        except OSError as error:
            log.warning("log: %s", explained(error, self._folder, "have all safe, and write it again in the log in"))
        self._begin()

    def _begin(self) -> None:
        if not self._is_in_place():
            self._restore()
            return
        self._tail.begin()
        self._look()
        self._publish()

    def _expire(self) -> None:
        if self.bounds.age_s is None:
            return
        while (segment := self._aged_segment()) is not None:
            self.dropped["too old"] += self._sealed.drop(segment, self._is_needed)

    def _is_aged(self) -> bool:
        """Tell whether a bound of age asks for a new segment, or for an old one to be dropped."""
        if self.bounds.age_s is None:
            return False
        tail_ns = self._clock() - self._tail.began_ns
        return (
            self._tail.size > 0 and tail_ns > self.bounds.age_s * 1e9 / _SEGMENTS
        ) or self._aged_segment() is not None

    def _aged_segment(self) -> Segment | None:
        """Return the first segment if all in it is too old."""
        first = next(iter(self._sealed.segments), None)
        return first if first is not None and self.is_too_old(self._sealed.made_ns(first)) else None

    def _is_needed(self, position: int) -> bool:
        """Tell whether somebody has still to take an entry: who drops it counts it then."""
        return position >= 0 and (not self._consumers or any(consumer.needs(position) for consumer in self._consumers))

    @contextmanager
    def _nothing_dropped(self, reader: Reader) -> Iterator[None]:
        """Drop nothing during a read, and have the reader skip what was dropped: it is counted already."""
        with suppress(OSError):  # what is open can be read in any case
            self._stay()
        with self._condition:
            reader.stay_among([*self._sealed.segments, self._tail.segment])
            yield

    def _no_room(self, size: int) -> InputError:
        return InputError(
            f"no room in the log in {self._folder}: {size:,} more bytes would pass the limit of {self.bounds.nbytes:,}, and "
            f"{self.nbytes:,} are there; raise it, or have the oldest dropped"
        )

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explained(error, self._folder, doing) from error
