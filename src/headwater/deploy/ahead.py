"""Large state that goes ahead of a move, while the part that has it runs: only what has changed since travels at the end.

State is known by the file that it is in, and where. What is where it will be needed is left out of a checkpoint that
travels: a mark stands for it there, until it is filled in where the checkpoint arrives.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

from headwater.deploy.control.messages import Message, Piece, Sent, Took
from headwater.engine.checkpoint.chain import hold
from headwater.engine.checkpoint.store import Checkpoint, Instead, Store, Stored
from headwater.errors import RunError
from headwater.io.files import sync
from headwater.io.log.disk import SystemDisk

LARGE = 2**18  #: bytes of one state from which on it goes ahead
_PIECE = 2**22  #: bytes that go as one message: nobody else has to wait for more
_WINDOW = 4  #: pieces that are on their way at once: memory is for no more, wherever they pass
_MARK = b"\0headwater state that went ahead\0"
_KEY = 64  #: characters of a key
_SIZES = struct.Struct(">QI")  #: behind it in a mark: how many bytes the state has, and their checksum
_TRIES = 3  #: to read a checkpoint whose run may just have removed it, for the next


class PassingDisk(SystemDisk):
    """Where nothing is there for long, or is safe already: a crash begins anew."""

    def fsync(self, fd: int) -> None:
        """Leave it to the system."""

    def fsync_dir(self, folder: str) -> None:
        """Leave it to the system."""


def large_states(
    checkpoint: Path, steps: Collection[str], who: str, known: Collection[str] = ()
) -> list[tuple[str, Stored]]:
    """Return the large states of steps in the last checkpoint of a part that may run; it builds on that from then on.

    Those that are `known` where they will be needed are left out.
    """
    if not any(checkpoint.glob("*.checkpoint")):
        return []
    hold(checkpoint, who)
    for _ in range(_TRIES):
        store = Store(checkpoint, PassingDisk())
        with suppress(OSError, ValueError, IndexError):
            latest = store.read(store.numbers()[-1], lambda stored: stored if stored.size >= LARGE else None)
            large = ((step, state) for step in steps for state in _states_of(latest, step) if isinstance(state, Stored))
            return [(step, state) for step, state in large if not known or key_of(state) not in known]
    return []


def pieces(move: str, step: str, stored: Stored) -> Iterator[Piece]:
    """Return the messages by which state goes ahead; not all of them where it is not there any more, or is spoilt."""
    with suppress(OSError):
        key, checksum = key_of(stored), 0
        for at in range(0, stored.size, _PIECE):
            with open(stored.path, "rb") as file:  # each time: nobody may ever ask for the next piece
                file.seek(stored.at + at)
                data = file.read(min(_PIECE, stored.size - at))
            checksum = crc32(data, checksum)
            piece = Piece(move, step, key, stored.size, stored.checksum, at, data)
            if key_of(stored) != key or (piece.is_last and checksum != stored.checksum):
                return
            yield piece


def key_of(stored: Stored) -> str:
    """Return what state is known by, without a look at its bytes: the file that it is in, which nobody changes, and where.

    OSError where that is not there any more.
    """
    file = os.stat(stored.path)
    return sha256(repr((*stored, file.st_ino, file.st_mtime_ns, file.st_size)).encode()).hexdigest()


def marks(keys: Collection[str]) -> Instead:
    """Return what has marks read from a checkpoint for state that is known elsewhere, in place of its bytes."""

    def mark(stored: Stored) -> bytes | None:
        if stored.size >= LARGE and keys:
            with suppress(OSError):  # who reads it says what is wrong
                key = key_of(stored)
                return _MARK + key.encode() + _SIZES.pack(stored.size, stored.checksum) if key in keys else None
        return None

    return mark


def with_marks(checkpoint: Checkpoint) -> bytes | None:
    """Return the file of a checkpoint that has marks; None for one that has none."""
    if not any(_is_mark(state) for state in _states_of(checkpoint)):
        return None
    with TemporaryDirectory() as folder:
        store = Store(folder, PassingDisk())
        _rewrite(store, checkpoint, lambda state: state)
        return store.files(checkpoint.number)[0].read_bytes()


def may_lack(files: Mapping[str, bytes]) -> bool:
    """Say whether state may be left out of what has travelled; cheap, since records wait."""
    return any(_MARK in content for content in files.values())


class Sending:
    """State of a part that goes ahead, a few pieces at a time."""

    def __init__(
        self,
        part: str,
        move: str,
        look: Callable[[], list[tuple[str, Stored]]],
        reply_if_kept: Callable[[Piece], list[Message] | None],
    ) -> None:
        """`look` returns what should be there, by step, `reply_if_kept` what is said of a piece that stays, else None."""
        self._part, self._move, self._look, self._reply_if_kept = part, move, look, reply_if_kept
        self._keys: dict[str, str] = {}
        self._pieces = self._all()
        self._under_way: set[tuple[str, int]] = set()
        self._is_over = False

    def took(self, word: Took) -> list[Message]:
        """Return what may go now that a piece has come."""
        self._under_way.discard((word.key, word.at))
        return self.more()

    def more(self) -> list[Message]:
        """Return what may go now; behind the last piece, that this is all."""
        messages: list[Message] = []
        while not self._is_over and len(self._under_way) < _WINDOW:
            piece = next(self._pieces, None)
            if piece is None:
                self._is_over = True
                return [*messages, Sent(self._part, self._move, self._keys)]
            self._keys |= {piece.key: piece.step} if piece.is_last else {}
            reply = self._reply_if_kept(piece)
            if reply is None:
                self._under_way.add((piece.key, piece.at))
            messages += [piece] if reply is None else reply
        return messages

    def _all(self) -> Iterator[Piece]:
        """Look again once all is sent: a whole checkpoint that was begun before may have taken its place."""
        for _ in range(_TRIES):
            new = [(step, stored) for step, stored in self._look() if not self._has(stored)]
            if not new:
                return
            for step, stored in new:
                yield from pieces(self._move, step, stored)

    def _has(self, stored: Stored) -> bool:
        with suppress(OSError):
            return key_of(stored) in self._keys
        return False


class Kept:
    """State that is here for a part that will be installed, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def expect(self) -> None:
        """Make the folder: who is killed knows by it, when he is back, that state may come."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def take(self, piece: Piece) -> bool:
        """Keep a piece, which come in order; return whether all of its state is here now, safe. RunError if it is wrong."""
        path = self._path(piece.key)
        if path.exists():
            return True
        self.expect()
        new = path.with_suffix(".new")
        if piece.at and (not new.exists() or new.stat().st_size != piece.at):
            return False
        with open(new, "ab" if piece.at else "wb") as file:
            file.write(piece.data)
        if not piece.is_last:
            return False
        if _checksum(new) != (piece.size, piece.checksum):
            new.unlink()
            raise RunError(
                f"state of step '{piece.step}' that goes ahead has come otherwise than it was sent; try again"
            )
        sync(new)
        new.replace(path)
        sync(self._folder)
        return True

    def fill_in(self, checkpoint: Path) -> None:
        """Put state beside the checkpoint that has marks for it, as it is: records wait. RunError where it is not here.

        It stays here too: a crash may have it asked for again.
        """
        store = Store(checkpoint, PassingDisk())
        latest = store.latest() if store.numbers() else None
        if latest is not None and any(_is_mark(state) for state in _states_of(latest)):
            _rewrite(store, latest, lambda state: self._laid(state, store) if _is_mark(state) else state)

    def _laid(self, mark: bytes, store: Store) -> Stored:
        key = mark[len(_MARK) : -_SIZES.size].decode()
        size, checksum = _SIZES.unpack(mark[-_SIZES.size :])
        path, to = self._path(key), store.beside(key)
        try:
            if path.stat().st_size != size:
                raise RunError(f"state that went ahead has {path.stat().st_size:,} bytes here, not {size:,}; try again")
            if not to.exists():
                _link(path, to)
        except FileNotFoundError as error:
            raise RunError(f"state that went ahead is not here any more: {error.strerror}; try again") from None
        return Stored(str(to), 0, size, checksum)

    def remove(self) -> None:
        """Forget it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, key: str) -> Path:
        if len(key) != _KEY or not key.isalnum():
            raise RunError(f"state has a key that is none: {key[:80]!r}")
        return self._folder / key


def _checksum(path: Path) -> tuple[int, int]:
    """Return how long a file is, and the checksum of its bytes, of which few are in memory at a time."""
    size = checksum = 0
    with open(path, "rb") as file:
        while data := file.read(_PIECE):
            size, checksum = size + len(data), crc32(data, checksum)
    return size, checksum


def _link(path: Path, to: Path) -> None:
    """Give a file another name, or copy it where a disk knows no such thing."""
    try:
        os.link(path, to)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, to)


def _is_mark(state: bytes) -> bool:
    return state.startswith(_MARK) and len(state) == len(_MARK) + _KEY + _SIZES.size


def _states_of(checkpoint: Checkpoint, step: str | None = None) -> Iterator[Any]:
    tasks = checkpoint.content["tasks"]
    for task in tasks.get(step, ()) if step is not None else chain(*tasks.values()):
        yield task["state"]
        yield from task["changes"]


def _rewrite(store: Store, checkpoint: Checkpoint, change: Callable[[bytes], bytes | Stored]) -> None:
    """Write a checkpoint anew, by itself, with states that are changed."""
    states: list[bytes | Stored] = []
    tasks: dict[str, list[Mapping[str, Any]]] = {}
    for name, each in checkpoint.content["tasks"].items():
        for task in each:
            at = len(states)
            states += [change(state) for state in (task["state"], *task["changes"])]
            entry = {"state": at, "whole": True, "changes": list(range(at + 1, len(states)))}
            tasks.setdefault(name, []).append(task | entry)
    store.write(checkpoint.number, checkpoint.content | {"tasks": tasks}, states)


def sweep(folder: Path, older_s: float, now_s: float) -> None:
    """Remove what is left of moves that came to nothing while the site was away."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if now_s - os.stat(path).st_mtime > older_s:
                shutil.rmtree(path, ignore_errors=True)
