"""The log on a disk that crashes and fails, by a seed: one schedule of appends, syncs, reads, releases and crashes."""

from __future__ import annotations

from collections import Counter
from random import Random

from headwater.errors import InputError
from headwater.io.log import Bounds, Entry, Log
from headwater.io.log.bounds import WhenFull
from headwater.sim.disk import PowerCutError, SimulatedDisk

_FULL: tuple[WhenFull, ...] = ("hold", "drop oldest", "drop lowest")
_FAULTS = {
    "write": 0.05,
    "fsync": 0.05,
    "fsync_dir": 0.03,
    "open": 0.01,
    "rename": 0.03,
    "unlink": 0.03,
    "truncate": 0.2,
    "write_at": 0.02,
    "read": 0.01,
}


class LogTrial:
    """One schedule of appends, syncs, reads, releases and crashes, and what must hold of it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.faults = {call: chance for call, chance in _FAULTS.items() if random.random() < 0.5} if seed % 3 else {}
        self.disk = SimulatedDisk(random)
        full: WhenFull = random.choice(_FULL)
        self.bounds = Bounds(random.choice([None, 2000]), full=full)
        self.time_ns = 0
        self.written: dict[int, bytes] = {}  #: by position, what was appended and may be there
        self.acknowledged = 0  #: before this position all is safe
        self.released = self.released_safely = 0
        self.told = 0  #: faults of the disk that who used the log was told of
        self.open()

    def clock(self) -> int:
        """Return a moment that is later than the one before."""
        self.time_ns += 1
        return self.time_ns

    def open(self) -> None:
        """Open the log, after whatever has happened to it; a start may fail too."""
        self.disk.chances = self.faults
        for attempt in range(5):
            if attempt == 4:
                self.disk.chances = {}
            elif self.random.random() < 0.1:
                self.disk.fuse = self.random.randrange(20)
            try:
                self.log = Log("d", self.bounds, segment_bytes=300, disk=self.disk, clock=self.clock)
                self.consumer = self.log.consumer("c")
                break
            except InputError:
                self.disk.kill()
            except PowerCutError:
                self.disk.crash()
            finally:
                self.disk.fuse = None
        self.disk.chances = self.faults
        log = self.log
        assert log.end >= self.acknowledged, "an acknowledged entry is gone"
        assert (log.lost, log.troubles) == (0, [])
        for position in [position for position in self.written if position >= log.end]:
            del self.written[position]
        assert self.released_safely <= self.consumer.released <= self.released
        self.next = self.released = self.consumer.released
        self.acknowledged = log.synced
        assert log.synced == log.end

    def run(self, steps: int = 30) -> Counter[str]:
        """Make so many moves, crash, and look at what is there; return what happened."""
        moves = (
            [self.append] * 8
            + [self.sync] * 4
            + [self.read] * 3
            + [self.release] * 3
            + [self.crash, self.kill, self.end, self.delete]
        )
        for _ in range(steps):
            if self.random.random() < 0.1:
                self.disk.fuse = self.random.randrange(15)
            try:
                self.random.choice(moves)()
            except PowerCutError:
                self.crash()
            self.disk.fuse = None
        self.faults = {}
        self.crash()
        self.check()
        return Counter(told=self.told)

    def append(self) -> None:
        """Append some entries."""
        for _ in range(self.random.randrange(1, 4)):
            data = self.random.randbytes(self.random.randrange(90))
            if self.disk.fuse is not None:
                self.written[self.log.end] = data  # it may be there though nobody was told
            try:
                position = self.log.append(data, priority=self.random.randrange(3))
            except InputError:
                self.told += 1
                self.written.pop(self.log.end, None)
                continue
            if position is not None:
                assert self.written.get(position, data) == data
                self.written[position] = data
                assert self.bounds.nbytes is None or self.log.nbytes <= self.bounds.nbytes

    def sync(self) -> None:
        """Have all that was appended safe."""
        end = self.log.end
        try:
            assert self.log.sync() == end
            self.acknowledged = end
        except InputError:
            self.told += 1
            assert self.log.synced < end
        assert self.log.synced >= self.acknowledged

    def read(self) -> None:
        """Read on: what is safe alone, in order."""
        try:
            entries = self.consumer.read(self.random.choice([1, 200, 10_000]))
        except InputError:
            self.told += 1
            return
        for entry in entries:
            if self.bounds.full == "hold":
                assert entry.position == self.next
            assert entry.position >= self.next
            assert self.written[entry.position] == entry.data
            self.next = entry.position + 1
        assert self.next <= self.log.synced
        assert self.consumer.reader.lost == 0

    def release(self) -> None:
        """Be done with some of what was read."""
        if self.next == self.released:
            return
        position = self.random.randint(self.released, self.next)
        self.released = max(position, self.released)
        try:
            self.consumer.release(position)
            if self.random.random() < 0.3:
                self.consumer.sync()
                self.released_safely = self.released
        except InputError:
            self.told += 1

    def crash(self) -> None:
        """Lose power, and open the log again."""
        self.disk.crash()
        self.open()

    def kill(self) -> None:
        """Kill the process, and open the log again."""
        self.disk.kill()
        self.open()

    def end(self) -> None:
        """Close the log, and open it again."""
        try:
            self.log.close()
            self.acknowledged = self.log.end
        except InputError:
            self.told += 1
        self.disk.kill()
        self.open()

    def delete(self) -> None:
        """Delete the folder under the log, as somebody does who cleans up; it is there again once it was looked for."""
        self.disk.fuse = None
        self.disk.delete("d")
        while True:
            try:
                self.log.look_again()
                return
            except InputError:
                self.told += 1

    def check(self) -> None:
        """Read all that is there: in order, once, as it was written, and all that was acknowledged and is still needed."""
        reader = self.log.reader()
        stored: list[Entry] = []
        while entries := reader.read(500):
            stored += entries
        positions = [entry.position for entry in stored]
        assert positions == sorted(set(positions))
        assert len(positions) + reader.skipped == self.log.end
        if self.bounds.full != "drop lowest":
            assert positions == list(range(self.log.first, self.log.end))
        assert all(self.written[entry.position] == entry.data for entry in stored)
        assert reader.lost == 0
        if self.bounds.full == "hold" or self.bounds.nbytes is None:
            assert self.log.first <= self.released
        if self.bounds.nbytes is None:
            assert stored or not self.log.end, "the last entry is gone"
