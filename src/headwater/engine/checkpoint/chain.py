"""Decides which checkpoints hold all state, and which only what has changed since the one before."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

SMALL_BYTES = 2**20  #: state of so much is always saved whole: then each checkpoint stands by itself
_LONGEST = 8  #: checkpoints that may follow one that is whole: all of them are read when a run goes on
_LONGEST_HELD = (
    256  #: the same while somebody copies the whole one, so that what changes meanwhile is all that is lacking
)
_HOLD = "hold"  #: a file beside checkpoints, while that is so
_HELD_S = 600.0  #: after which nobody does: he was killed


def hold(folder: Path, who: str) -> None:
    """Have the run that makes checkpoints in a folder build on the last whole one, until `let_go`."""
    (folder / _HOLD).write_text(who)


def let_go(folder: Path, who: str) -> None:
    """Have checkpoints be made as usual again, if it was he who wanted it otherwise."""
    with suppress(OSError):
        if (folder / _HOLD).read_text() == who:
            (folder / _HOLD).unlink()


def is_held(folder: Path) -> bool:
    """Say whether somebody copies the last whole checkpoint."""
    try:
        return time.time() - (folder / _HOLD).stat().st_mtime < _HELD_S
    except OSError:
        return False


class Chain:
    """A whole checkpoint, and those that build on it, each on the one right before.

    >>> chain = Chain(small_bytes=0)
    >>> chain.begin(0), chain.is_whole(0), chain.complete(0, nbytes=10)
    (None, True, None)
    >>> chain.begin(1), chain.is_whole(1)
    (None, False)
    >>> chain.begin(2), chain.is_whole(2)  # 1 came to nothing: what had changed until then is in none
    (None, True)
    """

    def __init__(self, small_bytes: int = SMALL_BYTES) -> None:
        self._small_bytes = small_bytes
        self._changes = -1  #: the checkpoint of changes that was begun last
        self._complete: int | None = None  #: the last one
        self._length = self._whole_bytes = 0

    def begin(self, number: int, *, held: bool = False) -> None:
        """Decide about a checkpoint, before any task hears of it; `held` is whether the last whole one is being copied."""
        longest = _LONGEST_HELD if held else _LONGEST
        builds = self._complete == number - 1 and self._length < longest and self._whole_bytes >= self._small_bytes
        if builds:
            self._changes = number

    def is_whole(self, number: int) -> bool:
        """Say whether a checkpoint that was begun holds all state."""
        return number != self._changes

    def base(self, number: int) -> int | None:
        """Return the checkpoint that one builds on; None if it stands by itself."""
        return None if self.is_whole(number) else number - 1

    @property
    def last(self) -> int | None:
        """The last checkpoint that was made here and is there."""
        return self._complete

    def broken(self) -> None:
        """Learn that the last checkpoint is there no more, so that the next one has to hold all."""
        self._complete = None

    def complete(self, number: int, nbytes: int) -> None:
        """Learn that a checkpoint is there, and of how many bytes."""
        self._complete = number
        if self.is_whole(number):
            self._length, self._whole_bytes = 0, nbytes
        else:
            self._length += 1
