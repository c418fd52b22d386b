"""Large state that goes ahead of a move, while the part that has it runs: only what has changed since travels at the end.

State is known by its checksum. What is where it will be needed is left out of a checkpoint that travels: a mark stands for
it there, until it is filled in where the checkpoint arrives.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headwater.deploy.control.messages import Piece
from headwater.engine.checkpoint.chain import hold
from headwater.engine.checkpoint.store import Checkpoint, Store
from headwater.errors import RunError
from headwater.io.files import sync
from headwater.io.log.disk import SystemDisk

LARGE = 2**18  #: bytes of one state from which on it goes ahead
_PIECE = 2**22  #: bytes that go as one message: nobody else has to wait for more
_MARK = b"\0headwater state that went ahead\0"
_TRIES = 3  #: to read a checkpoint whose run may just have removed it, for the next


class PassingDisk(SystemDisk):
    """Where nothing is there for long, or is safe already: a crash begins anew."""

    def fsync(self, fd: int) -> None:
        """Leave it to the system."""

    def fsync_dir(self, folder: str) -> None:
        """Leave it to the system."""


def large_states(checkpoint: Path, steps: Collection[str], who: str) -> list[tuple[str, bytes]]:
    """Return the large states of steps in the last checkpoint of a part that may run; it builds on that from then on."""
    if not any(checkpoint.glob("*.checkpoint")):
        return []
    hold(checkpoint, who)
    for _ in range(_TRIES):
        store = Store(checkpoint, PassingDisk())
        with suppress(OSError, ValueError, IndexError):
            tasks = store.read(store.numbers()[-1]).content["tasks"]
            saved = [(step, each) for step in steps for each in tasks.get(step, ())]
            found = [(step, state) for step, each in saved for state in (each["state"], *each["changes"])]
            return [(step, state) for step, state in found if len(state) >= LARGE]
    return []


def pieces(move: str, step: str, state: bytes) -> Iterator[Piece]:
    """Return the messages by which state goes ahead."""
    key = key_of(state)
    for at in range(0, len(state), _PIECE):
        yield Piece(move, step, key, len(state), at, state[at : at + _PIECE])


def key_of(state: bytes) -> str:
    """Return what state is known by."""
    return sha256(state).hexdigest()


def without(found: Checkpoint, known: Collection[str]) -> bytes | None:
    """Return the file of a checkpoint with marks for what is known elsewhere; None where nothing of it is."""
    marked = False

    def mark(state: bytes) -> bytes:
        nonlocal marked
        if len(state) < LARGE or (key := key_of(state)) not in known:
            return state
        marked = True
        return _MARK + key.encode()

    with TemporaryDirectory() as folder:
        store = Store(folder, PassingDisk())
        _rewrite(store, found, mark)
        return store.files(found.number)[0].read_bytes() if marked else None


def may_lack(files: Mapping[str, bytes]) -> bool:
    """Say whether state may be left out of what has travelled; cheap, since records wait."""
    return any(_MARK in content for content in files.values())


class Kept:
    """State that is here for a part that will be installed, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, piece: Piece) -> bool:
        """Keep a piece, which come in order; return whether all of its state is here now, and is what it should be."""
        path = self._path(piece.key)
        if path.exists():
            return True
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        if piece.at and (not new.exists() or new.stat().st_size != piece.at):
            return False
        with open(new, "ab" if piece.at else "wb") as file:
            file.write(piece.data)
        if piece.at + len(piece.data) < piece.size:
            return False
        if key_of(new.read_bytes()) != piece.key:
            new.unlink()
            return False
        sync(new)
        new.replace(path)
        sync(self._folder)
        return True

    def fill_in(self, checkpoint: Path) -> None:
        """Put state into the checkpoint that has marks for it; RunError where it is not here."""
        store = Store(checkpoint, PassingDisk())
        found = store.latest() if store.numbers() else None
        if found is not None and any(_is_mark(state) for state in _states_of(found)):
            _rewrite(store, found, self._filled)

    def _filled(self, state: bytes) -> bytes:
        if not _is_mark(state):
            return state
        try:
            return self._path(state.removeprefix(_MARK).decode()).read_bytes()
        except OSError as error:
            raise RunError(f"state that went ahead is not here any more: {error.strerror}; try again") from None

    def remove(self) -> None:
        """Forget it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, key: str) -> Path:
        if len(key) != 64 or not key.isalnum():
            raise RunError(f"state has a key that is none: {key[:80]!r}")
        return self._folder / key


def _is_mark(state: bytes) -> bool:
    return state.startswith(_MARK) and len(state) == len(_MARK) + 64


def _states_of(found: Checkpoint) -> Iterator[bytes]:
    for tasks in found.content["tasks"].values():
        for saved in tasks:
            yield saved["state"]
            yield from saved["changes"]


def _rewrite(store: Store, found: Checkpoint, change: Callable[[bytes], bytes]) -> None:
    """Write a checkpoint anew, by itself, with states that are changed."""
    states: list[bytes] = []
    tasks: dict[str, list[Mapping[str, Any]]] = {}
    for name, each in found.content["tasks"].items():
        for saved in each:
            at = len(states)
            states += [change(state) for state in (saved["state"], *saved["changes"])]
            told = {"state": at, "whole": True, "changes": list(range(at + 1, len(states)))}
            tasks.setdefault(name, []).append(saved | told)
    store.write(found.number, found.content | {"tasks": tasks}, states)


def sweep(folder: Path, older_s: float, now_s: float) -> None:
    """Remove what is left of moves that came to nothing while the site was away."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if now_s - os.stat(path).st_mtime > older_s:
                shutil.rmtree(path, ignore_errors=True)
