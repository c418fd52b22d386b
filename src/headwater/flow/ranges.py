"""Reading by ranges: a source that can tell how far it can be read, and read any range of it again, in any process."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.data.batch import Batch
from headwater.errors import RunError
from headwater.flow.endpoints import Reject

Offset = dict[str, Any]  #: a place in a source as plain JSON; `ended` is true when nothing follows it
Piece = tuple[Any, ...]  #: part of a range, for one task: plain values

_LOOK_S = 0.01  #: between two looks at a source that cannot tell when it will have more


class Ranges(ABC):
    """A source cut into ranges. One object plans them; copies of it read them, on other machines if need be.

    The same two offsets always give the same pieces, and the same piece the same records: that is what makes a
    restart exact. `start` is called before any copy is made, and may look at the source; making the object must not.
    """

    #: the only columns that it reads; None for all
    columns: tuple[str, ...] | None = None
    #: whether, once started, it can tell where a range ends much faster than it reads it
    quick_to_cut = True
    #: whether all that will ever be read is there when reading starts
    has_end = False
    #: whether records fall due by a clock that can be started anew, see `anew`
    has_clock = False
    #: how much is read at once; may be changed between two calls of `advance`
    sizes: Sizes

    @abstractmethod
    def start(self) -> Offset:
        """Return where reading begins; raises what is wrong with the source."""

    @abstractmethod
    def advance(self, at: Offset) -> Offset:
        """Return how far may be read next; `at` itself while there is nothing new."""

    @abstractmethod
    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return the pieces between two offsets, in the source's order."""

    @abstractmethod
    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read a piece; what is not a record goes to `reject`."""

    def split_of(self, piece: Piece) -> int | None:
        """Return the split that a piece is of, for a source that has some (`splits`): each piece is of one alone."""
        return None

    def behind(self, at: Offset) -> Collection[int]:
        """Return the splits that hold more than what lies before an offset: event time waits for them.

        It is asked again after a restart: the same offset has the same answer.
        """
        return ()

    def finish(self, at: Offset, until_ns: int | None) -> Offset:
        """Return how far is still read once reading is to end, by what was due until a moment: no further, mostly."""
        return at

    def anew(self, at: Offset) -> Offset:
        """Return an offset of `has_clock` as if no time had passed since what lies before it was due."""
        return at

    def wait(self, at: Offset, timeout_s: float) -> None:
        """Wait, for so long at most, until there may be something behind an offset."""
        time.sleep(min(timeout_s, _LOOK_S))

    def changed(self, at: Offset) -> str:
        """Say how what was read up to an offset is no longer what it was; nothing if it is, or if that cannot be told."""
        return ""

    def offset(self, position: Any) -> Offset:
        """Return as an offset what a reader of the same source tells as its position, for a run that another takes over."""
        raise RunError(
            f"{type(self).__name__} does not say which offset a reader's position is; give it the method offset"
        )

    def position(self, at: Offset) -> Any:
        """Return an offset as a reader of the same source tells it, the other way round."""
        raise RunError(f"{type(self).__name__} does not say which position an offset is; give it the method position")

    def share(self, at: Offset) -> float | None:
        """Return which part of the source, of 1, lies before an offset; None where that cannot be told."""
        return None

    def forget(self, end: Offset) -> None:  # noqa: B027  most keep nothing
        """Take note that nothing before `end` will be asked for again."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is read at once."""

    parallel: int  #: pieces that are read at the same time
    batch_bytes: int = 64 * 2**20  #: the most that is read at once, of a source that has bytes
    batch_records: int = 2**20  #: and of one that has not
    piece_bytes: int = 2**20  #: less than this is not worth a task of its own
    piece_records: int = 2**14

    def pieces(self, size: int, smallest: int) -> int:
        """Return into how many pieces a range should be cut."""
        return max(1, min(self.parallel, size // smallest))


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """How a runner wants a source to be read by ranges."""

    sizes: Sizes
    #: the columns that somebody looks at: a source that can leaves the others alone; None for all
    columns: tuple[str, ...] | None = None
    #: whether records that are due at a set rate are read without waiting for their moments
    at_once: bool = False
    #: whether several processes read it by turns, each from where another has come: an offset then holds for all of them
    together: bool = False


def ranges_of(source: Any, request: RangeRequest) -> Ranges | None:
    """Return how a source is read by ranges, as its method `ranges` says; None where it has none, or cannot be here."""
    ranges = getattr(source, "ranges", None)
    result: Ranges | None = ranges(request) if callable(ranges) else None
    return result
