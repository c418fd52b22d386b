"""What is found in the last segment of a log when it is opened again, after a crash or a clean end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.io.log.entry import Entry, first_of, next_whole, parse_entry


class Hole(NamedTuple):
    """A damaged place between two whole entries, or behind the last one: the positions that are missing there."""

    byte: int
    start: int
    stop: int


class SegmentContents(NamedTuple):
    """What a segment holds, as far as it can be trusted."""

    entries: list[Entry]
    end: int  #: bytes up to the end of the last entry that counts
    next: int  #: the position after it
    safe: int  #: the position up to which all was once said to be safe on disk
    lost: list[Hole]  #: entries that were safe, and are damaged
    cut_bytes: int  #: what was not written to its end, or lies behind such a place, and was never said to be safe
    cut_entries: int  #: whole ones among these


def examine(data: bytes, salt: int, first: int, known_safe: int) -> SegmentContents:
    """Read a segment to its end.

    Entries that were said to be safe count even if one before them is damaged. The others count up to the first damage:
    who wrote them was told nothing, and must not find a later one without an earlier one.
    """
    entries_found = list(whole(data, salt, first))
    safe = max([known_safe, first, *(entry.known_safe for entry, _, _ in entries_found)])
    entries: list[Entry] = []
    lost: list[Hole] = []
    position, at = first, 0
    for number, (entry, start, end) in enumerate(entries_found):
        if first_of(entry) > position or start > at:
            if position >= safe:
                return SegmentContents(entries, at, position, safe, lost, len(data) - at, len(entries_found) - number)
            lost.append(Hole(at, position, first_of(entry)))
        entries.append(entry)
        position, at = entry.position + 1, end
    if (
        position < safe
    ):  # damaged, however much it looks like an end that a crash has torn: it was there once, all of it
        lost.append(Hole(at, position, safe))
        return SegmentContents(entries, at, safe, safe, lost, 0, 0)
    return SegmentContents(entries, at, position, safe, lost, len(data) - at, 0)


def whole(data: bytes, salt: int, first: int) -> Iterator[tuple[Entry, int, int]]:
    """Return all whole entries, with where they begin and end."""
    at, position = 0, first
    while at < len(data):
        match = parse_entry(data, at, salt)
        start = at
        if match is None or match[0].position < position:
            match = next_whole(data, at, salt, position)
            if match is None:
                return
            start = match[1] - match[0].nbytes
        entry, at = match
        yield entry, start, at
        position = entry.position + 1
