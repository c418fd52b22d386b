"""Whose turn it is, where several writers of a sink have records of a key to deliver, one after the other.

A run with other writers than before sends a key's records by another of them. What the one before had still to deliver has
to be there first, or the records would be out of order. That is told by the notes of the writers alone: each may be at work
in another process, and it may take some runs until all is delivered.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headwater.io.files import replace_whole
from headwater.io.log import Reader, SystemDisk
from headwater.io.log.consumer import release_positions
from headwater.io.transactions import notes_of
from headwater.io.transactions.outbox import undelivered

FORWARD = "forward"  #: the folder of a log, in the notes of a sink that has no parts of its own
_FILE = "ahead"


class Rest(msgspec.Struct, frozen=True):
    """What a writer had to deliver at some moment: its parts up to one, and the entries of its log before one."""

    writer: str
    part: int
    entry: int

    @classmethod
    def of(cls, checkpoint: Path, writer: str, part: int) -> Rest:
        """Look at what a writer has to deliver, before anybody goes on; parts up to the given one count."""
        return cls(writer, part, _end(notes_of(checkpoint, writer) / FORWARD))

    def is_delivered(self, checkpoint: Path) -> bool:
        """Tell whether all of it is there."""
        notes = notes_of(checkpoint, self.writer)
        is_sent = not self.entry or min(release_positions(SystemDisk(), str(notes / FORWARD)), default=0) >= self.entry
        return is_sent and not undelivered(notes, self.part)


class _Border(msgspec.Struct):
    """From where on, in what a writer has to deliver, it waits for others."""

    part: int
    entry: int
    rests: list[Rest]


class Predecessors:
    """What goes ahead of a writer's own; noted until it is delivered, for later runs too."""

    def __init__(self, checkpoint: Path, writer: str) -> None:
        self._checkpoint, self._path = checkpoint, notes_of(checkpoint, writer) / _FILE
        data = self._path.read_bytes() if self._path.exists() else b"[]"
        self._borders = msgspec.json.decode(data, type=list[_Border])

    def let_pass(self, own: Rest, others: Iterable[Rest]) -> None:
        """Wait with all that is behind what this writer has now until the others have delivered what they have now."""
        rests = [each for each in others if not each.is_delivered(self._checkpoint)]
        if rests:
            self._borders.append(_Border(own.part, own.entry, rests))
            replace_whole(self._path, msgspec.json.encode(self._borders))

    def is_turn_of_part(self, number: int) -> bool:
        """Tell whether a part may be delivered."""
        return not self._borders or all(number <= each.part for each in self._open_borders())

    def is_turn_of_entry(self, position: int) -> bool:
        """Tell whether an entry of the log may be delivered."""
        return not self._borders or all(position < each.entry for each in self._open_borders())

    def _open_borders(self) -> list[_Border]:
        """Return where something is still to be waited for."""
        for border in self._borders:
            border.rests = [each for each in border.rests if not each.is_delivered(self._checkpoint)]
        self._borders = [border for border in self._borders if border.rests]
        if not self._borders:
            self._path.unlink(missing_ok=True)
        return self._borders


def _end(log: Path) -> int:
    if not log.is_dir():
        return 0
    reader = Reader(log)
    try:
        return reader.published()
    finally:
        reader.close()
