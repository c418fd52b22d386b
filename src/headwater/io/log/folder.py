"""Where a log is: a folder that one process writes, and that somebody may delete under it."""

from __future__ import annotations

from collections.abc import Callable

from headwater.errors import InputError
from headwater.io.log.disk import Disk
from headwater.io.log.segment import write_whole


class LogFolder:
    """The folder of a log: its lock, and small notes beside the entries. Its methods raise OSError."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk, self._folder = disk, folder
        self._lock_fd = -1
        self._notes: dict[str, bytes] = {}

    @property
    def is_there(self) -> bool:
        """Whether it is the folder that was taken."""
        return self._disk.is_at(self._lock_fd, f"{self._folder}/lock")

    def take(self) -> None:
        """Make the folder, and keep it to ourselves; raises InputError where another run has it."""
        self._disk.mkdir(self._folder)
        fd = self._disk.open(f"{self._folder}/lock", create=True)
        if not self._disk.lock(fd):
            self._disk.close(fd)
            raise InputError(
                f"cannot keep a log in {self._folder}: another run is writing it; wait until that has ended, or log "
                "elsewhere"
            )
        self.let_go()
        self._lock_fd = fd

    def note(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return what a small file says; where there is none, what `make` returns is written into it."""
        path = f"{self._folder}/{name}"
        try:
            fd = self._disk.open(path)
        except FileNotFoundError:
            self._notes[name] = make()
            write_whole(self._disk, path, self._notes[name])
            self._disk.fsync_dir(self._folder)
        else:
            self._notes[name] = self._disk.read(fd, self._disk.size(fd), 0)
            self._disk.close(fd)
        return self._notes[name]

    def restore(self) -> None:
        """Have the folder and its notes there again, where somebody has deleted them."""
        if not self.is_there:
            self.take()
        for name, data in self._notes.items():
            write_whole(self._disk, f"{self._folder}/{name}", data)

    def let_go(self) -> None:
        """Let others have the folder."""
        if self._lock_fd >= 0:
            self._disk.close(self._lock_fd)
            self._lock_fd = -1
