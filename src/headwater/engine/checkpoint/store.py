"""Checkpoints in a folder: each one file, written whole, checked by checksums when it is read.

A file is a head, an index and states. The index is what is known of the flow, its sources and tasks (`data.codec`), and the
length and checksum of each state; a task names its state by number, and its `changes` since, where it brings some along. A
checkpoint may hold only what has changed since another one: its head says which, and that one is kept for as long. So is a
file of its own that a state is in: the index says its name then.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable, Collection, Sequence
from errno import ENOENT
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from headwater.data.codec import decode, encode
from headwater.errors import RunError
from headwater.io.log.disk import Disk, SystemDisk

log = logging.getLogger(__name__)

_MAGIC = b"HWCKPT02"
#: magic, the checkpoint that it builds on or -1, length of the index and a checksum of that and of what it builds on
_HEAD = struct.Struct("<8sqQI")
_BASE = struct.Struct("<q")
_KEPT = 2  #: complete checkpoints that stay: the last, and the one before, should the last be unreadable
_SUFFIX = ".checkpoint"
_STATE = ".state"  #: a file that is one state, beside the checkpoints that name it
_CHUNK = 2**24
_WRONG = "its checksum is wrong: some of its bytes are not what was written"


def refuse_others(folder: Path) -> None:
    """Raise RunError for a folder that holds something else than checkpoints of the engine."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if not names or any(name.endswith((_SUFFIX, f"{_SUFFIX}.new")) for name in names):
        return
    if "headwater.json" in names:
        raise RunError(
            f"checkpoint {folder} is one of Spark's, which the engine cannot go on from; "
            f"give a folder of its own, or take it over: headwater takeover FLOW --from {folder} --to NEW"
        )
    if {name for name in names if not name.endswith(_STATE)} - {"lock", "sinks", "sources"}:
        raise RunError(f"{folder} is no checkpoint of Headwater's, and not empty; give an empty or a new folder")


class Checkpoint(NamedTuple):
    """A complete checkpoint."""

    number: int
    content: dict[str, Any]  #: with the state of each task, and its `changes` since, as bytes


class Stored(NamedTuple):
    """A state that is on disk, of so many bytes from a place in a file on."""

    path: str
    at: int
    size: int
    checksum: int  #: of its bytes, which nobody has looked at


#: Returns what stands for a state in place of its bytes, which are not read then; None for one that is to be read.
Instead = Callable[[Stored], Any]


class Store:
    """Writes and finds checkpoints; what it has written is there after any crash, or was never complete."""

    def __init__(self, folder: str | Path, disk: Disk | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.disk: Disk = disk or SystemDisk()
        self.written_bytes = 0  #: the size of the last one
        self._since: dict[int, int | None] = {}  #: which checkpoint each builds on
        self._beside: dict[int, set[str]] = {}  #: names of files that states of each are in
        try:
            self.disk.mkdir(str(self.folder))
        except OSError as error:
            raise RunError(f"cannot keep checkpoints in {self.folder}: {error.strerror}") from error

    def write(
        self, number: int, content: dict[str, Any], states: Sequence[bytes | Stored] = (), *, since: int | None = None
    ) -> None:
        """Write a checkpoint; it is complete when this returns. Raises OSError, and then it is not.

        States that are not whole hold what has changed since another checkpoint. One that is `Stored` is a file already, see
        `beside`.
        """
        if since is not None and self.lacks(since):
            raise FileNotFoundError(ENOENT, f"checkpoint {since}, which it would build on, was deleted")
        index = encode({**content, "states": [_entry(state) for state in states]})
        within = [state for state in states if not isinstance(state, Stored)]
        base = -1 if since is None else since
        head = _HEAD.pack(_MAGIC, base, len(index), crc32(index, _seed(base)))
        self.written_bytes = len(head) + len(index) + sum(map(len, within))
        self._write(self._file(number), [head, index, *within])
        self._since[number] = since
        self._beside[number] = {Path(state.path).name for state in states if isinstance(state, Stored)}
        self._sweep()

    def beside(self, name: str) -> Path:
        """Return where a state is to be, safe, that `write` is given as `Stored`; it is removed when none needs it."""
        return self.folder / f"{name}{_STATE}"

    def lacks(self, number: int) -> bool:
        """Tell whether somebody has deleted a checkpoint that was written, or one that it builds on."""
        try:
            return not set(self._chain(number)) <= set(self.numbers())
        except FileNotFoundError:
            return True
        except OSError:  # who writes the next one is told
            return False

    def _sweep(self) -> None:
        """Remove what is needed no longer, and what attempts have left that came to nothing; another time if not now."""
        try:
            chains = {each for number in self.numbers()[-_KEPT:] for each in self._chain(number)}
            self._since = {number: self._since[number] for number in chains}
            live = {Path(self._file(number)).name for number in chains}
            names = self.disk.listdir(str(self.folder))
            ours = [name for name in names if name.endswith((_SUFFIX, f"{_SUFFIX}.new"))]
            states = [name for name in names if name.endswith(_STATE)]
            self._beside = {number: files for number, files in self._beside.items() if number in chains}
            if states:
                with contextlib.suppress(ValueError):  # which may need any of them, if only it could be read
                    ours += set(states) - self._state_files(chains)
            for name in ours:
                if name not in live:
                    self.disk.unlink(self._path(name))
        except OSError as error:
            log.warning("cannot remove old checkpoints from %s: %s", self.folder, error.strerror)

    def _state_files(self, numbers: Collection[int]) -> set[str]:
        """Return the names of files that states of some checkpoints are in; ValueError where one is spoilt."""
        for number in numbers:
            if number not in self._beside:
                self._content(number, lambda stored: stored)
        return {name for number in numbers for name in self._beside[number]}

    def files(self, number: int) -> list[Path]:
        """Return the files that a checkpoint consists of: its own, those that it builds on, those that states are in."""
        numbers = self._chain(number)
        return [*map(Path, map(self._file, numbers)), *map(self.folder.joinpath, sorted(self._state_files(numbers)))]

    def nbytes(self, number: int) -> int:
        """Return the size of a checkpoint's file."""
        fd = self.disk.open(self._file(number))
        try:
            return self.disk.size(fd)
        finally:
            self.disk.close(fd)

    def since(self, number: int) -> int | None:
        """Return the checkpoint that one builds on; None for one that stands by itself."""
        if number not in self._since:
            self._since[number] = self._head_of(number)
        return self._since[number]

    def _chain(self, number: int) -> list[int]:
        """Return the checkpoints that one consists of: it, and those that it builds on; as far as can be told."""
        chain: list[int] = []
        at: int | None = number
        while at is not None and at not in chain:
            chain.append(at)
            at = self.since(at)
        return chain

    def _head_of(self, number: int) -> int | None:
        try:
            fd = self.disk.open(self._file(number))
        except OSError:
            return None
        try:
            magic, since, *_ = _HEAD.unpack(self.disk.read(fd, _HEAD.size, 0))
            return int(since) if magic == _MAGIC and since >= 0 else None
        except struct.error:  # cut short
            return None
        finally:
            self.disk.close(fd)

    def numbers(self) -> list[int]:
        """Return the numbers of the checkpoints that are there, oldest first."""
        names = (Path(name) for name in self.disk.listdir(str(self.folder)))
        return sorted(int(name.stem) for name in names if name.suffix == _SUFFIX and name.stem.isdigit())

    def latest(self, instead: Instead | None = None) -> Checkpoint | None:
        """Return the last complete checkpoint, None before the first; one that is spoilt is told and passed over."""
        numbers = self.numbers()
        for number in reversed(numbers):
            try:
                checkpoint = self.read(number, instead)
                # its name may not be safe, if the run that wrote it did not live to see to it: sinks will count on it
                self.disk.fsync_dir(str(self.folder))
                return checkpoint
            except ValueError as error:
                log.warning("checkpoint %s cannot be used: %s", self._file(number), error)
            except OSError as error:
                raise RunError(f"cannot read checkpoint {self._file(number)}: {error.strerror}") from error
        if numbers:
            raise RunError(
                f"no checkpoint in {self.folder} can be read, of {len(numbers)}; "
                "remove the folder to begin anew, or bring back a copy of it"
            )
        return None

    def read(self, number: int, instead: Instead | None = None) -> Checkpoint:
        """Return a checkpoint with all that it builds on; ValueError where something is not as it was written."""
        since, content, states = self._content(number, instead)
        whole = self.read(since, instead).content["tasks"] if since is not None else {}
        for name, tasks in content["tasks"].items():
            for at, task in enumerate(tasks):
                state = states[task["state"]]
                if task["whole"]:
                    task["state"], task["changes"] = state, [states[each] for each in task.get("changes", ())]
                else:
                    before = whole[name][at]
                    task["state"], task["changes"] = before["state"], [*before["changes"], state]
        return Checkpoint(number, content)

    def _content(self, number: int, instead: Instead | None) -> tuple[int | None, dict[str, Any], list[Any]]:
        """Return what a file says: which it builds on, its index, its states."""
        try:
            fd = self.disk.open(self._file(number))
        except FileNotFoundError:
            raise ValueError(f"checkpoint {number}, which it builds on, is not there") from None
        try:
            head = self._read(fd, _HEAD.size, 0)
            if len(head) < _HEAD.size:
                raise ValueError(f"it has only {len(head)} bytes")
            magic, since, length, checksum = _HEAD.unpack(head)
            if magic != _MAGIC:
                raise ValueError("it does not begin as a checkpoint does; was it written by another version?")
            content: dict[str, Any] = decode(self._read_checked(fd, length, _HEAD.size, checksum, _seed(since)))
            states, at, entries = [], _HEAD.size + length, content.pop("states")
            self._beside[number] = {_checked_name(each[2]) for each in entries if len(each) > 2}
            for size, expected, *beside in entries:
                path = self._path(*beside) if beside else self._file(number)
                stored = Stored(path, 0 if beside else at, size, expected)
                other = None if instead is None else instead(stored)
                if other is None:
                    other = self._apart(stored) if beside else self._read_checked(fd, size, at, expected)
                states.append(other)
                at += 0 if beside else size
        finally:
            self.disk.close(fd)
        return (None if since < 0 else int(since)), content, states

    def _apart(self, stored: Stored) -> bytes:
        """Return a state that is a file of its own."""
        try:
            fd = self.disk.open(stored.path)
        except FileNotFoundError:
            raise ValueError(f"{stored.path}, which has state of it, is not there") from None
        try:
            return self._read_checked(fd, stored.size, 0, stored.checksum)
        finally:
            self.disk.close(fd)

    def _read_checked(self, fd: int, size: int, at: int, checksum: int, seed: int = 0) -> bytes:
        """Return some bytes of a file, if they are what was written."""
        if self.disk.size(fd) < at + size:  # before memory is asked for by a length that may be none
            raise ValueError(f"it has {self.disk.size(fd):,} bytes where {at + size:,} or more were written")
        data = self._read(fd, size, at)
        if crc32(data, seed) != checksum:
            raise ValueError(_WRONG)
        return data

    def _path(self, name: str) -> str:
        return str(self.folder / name)

    def _file(self, number: int) -> str:
        return self._path(f"{number:09d}{_SUFFIX}")

    def _read(self, fd: int, size: int, at: int) -> bytes:
        """Return up to `size` bytes, those that are there; most often in one piece, without a copy."""
        parts = []
        while size and (part := self.disk.read(fd, size, at)):
            parts.append(part)
            at, size = at + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _write(self, path: str, parts: Sequence[bytes]) -> None:
        """Write a file whole: under another name until its bytes are safe."""
        fresh = f"{path}.new"
        self.disk.mkdir(str(self.folder))  # somebody may have cleaned up
        try:
            self._write_safely(fresh, parts)
        except OSError:
            with contextlib.suppress(OSError):
                self.disk.unlink(fresh)  # on a full disk, half a checkpoint each time would not make room
            raise
        self.disk.rename(fresh, path)
        self.disk.fsync_dir(str(self.folder))

    def _write_safely(self, path: str, parts: Sequence[bytes]) -> None:
        fd = self.disk.open(path, create=True)
        try:
            self.disk.truncate(fd, 0)
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[self.disk.write(fd, rest[:_CHUNK]) :]
            self.disk.fsync(fd)
        finally:
            self.disk.close(fd)


def _entry(state: bytes | Stored) -> list[Any]:
    """Return what the index says of a state."""
    if isinstance(state, Stored):
        return [state.size, state.checksum, Path(state.path).name]
    return [len(state), crc32(state)]


def _checked_name(name: str) -> str:
    if Path(name).name != name or not name.endswith(_STATE):
        raise ValueError(f"it has state in {name!r}, which is no name of a state beside it")
    return name


def _seed(since: int) -> int:
    """Return what the checksum of an index begins with, so that it is wrong under a head that names another base."""
    return crc32(_BASE.pack(since)) ^ crc32(_BASE.pack(-1))  # nothing, for one that stands by itself
