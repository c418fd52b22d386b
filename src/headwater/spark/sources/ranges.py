"""What a source must be able to do to be read by Spark: tell how far it can be read, and read any range of it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.data.batch import Batch
from headwater.flow.endpoints import Reject

Offset = dict[str, Any]  #: a place in a source as plain JSON; `ended` is true when nothing follows it
Piece = tuple[Any, ...]  #: part of a range, for one task: plain values


class Ranges(Protocol):
    """A source cut into ranges. One object plans them; copies of it read them, on other machines if need be.

    The same two offsets always give the same pieces, and the same piece the same records: that is what makes a
    restart exact.
    """

    def start(self) -> Offset:
        """Return where reading begins."""

    def advance(self, at: Offset) -> Offset:
        """Return how far the next micro-batch may read; `at` itself while there is nothing new."""

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return the pieces between two offsets, in the source's order."""

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read a piece; what is not a record goes to `reject`."""

    def forget(self, end: Offset) -> None:
        """Take note that nothing before `end` will be asked for again."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is read at once."""

    parallel: int  #: pieces that are read at the same time
    batch_bytes: int = 64 * 2**20  #: the most that a micro-batch takes, of a source that has bytes
    batch_records: int = 2**20  #: and of one that has not
    piece_bytes: int = 2**20  #: less than this is not worth a task of its own
    piece_records: int = 2**14

    def pieces(self, size: int, smallest: int) -> int:
        """Return into how many pieces a range should be cut."""
        return max(1, min(self.parallel, size // smallest))
