"""What is in the log of a source: each entry is a round of reading, whole or not there at all.

An entry says the source's position after the round and whether it was the last one, and holds the batches that were read:
records, and dead letters for what was no record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater.data.batch import Batch
from headwater.data.frames import pack, unpack_frame
from headwater.errors import InputError
from headwater.io.log import Entry, Reader

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class Last(NamedTuple):
    """What the last round said."""

    position: Any = None  #: of the source
    ended: bool = False


def pack_round(batches: Sequence[tuple[int, Batch]], position: Any, *, ended: bool) -> bytes:
    """Return a round as bytes; each batch has the output that it belongs to."""
    frames = [pack(batch) for _, batch in batches]
    sizes = [(port, len(frame)) for (port, _), frame in zip(batches, frames, strict=True)]
    head = _encode([position, ended, sizes])
    return b"".join([len(head).to_bytes(4, "little"), head, *frames])


def last_of(data: bytes) -> Last:
    """Return what a round says of where it ended."""
    position, ended, _ = _head(data)
    return Last(position, ended)


def batches_of(data: bytes) -> Iterator[tuple[int, Batch]]:
    """Return the batches of a round, each with the output that it belongs to."""
    at = 4 + int.from_bytes(data[:4], "little")
    for port, size in _head(data)[2]:
        yield port, unpack_frame(data[at : at + size])
        at += size


def entries(folder: Path, start: int, stop: int | None = None, most_bytes: int = 2**40) -> list[Entry]:
    """Return the rounds between two positions of the log, up to where it is safe; raises InputError if one is not there."""
    reader = Reader(folder, start, until=None if stop is None else lambda: stop)
    try:
        rounds = reader.read(most_bytes)
    finally:
        reader.close()
    if reader.troubles:
        raise InputError(f"the log of a source is damaged: {reader.troubles[0]}")
    if reader.skipped:
        raise InputError(
            f"the log of a source in {folder} lacks entries from {start} on; was the checkpoint copied in part?"
        )
    return rounds


def last_in(folder: Path, end: int | None = None) -> Last:
    """Return what the last safe round of a log said; if that is damaged, the last one that can be read."""
    if end is None:
        reader = Reader(folder)
        end = reader.published()
        reader.close()
    if not end:
        return Last()
    try:
        return last_of(entries(folder, end - 1, end)[-1].data)
    except InputError:
        return _last_whole(folder, end)


def _last_whole(folder: Path, end: int) -> Last:
    last = Last()
    reader = Reader(folder, until=lambda: end)
    try:
        while rounds := reader.read():
            last = last_of(rounds[-1].data)
    finally:
        reader.close()
    return last


def _head(data: bytes) -> Any:
    return _decode(memoryview(data)[4 : 4 + int.from_bytes(data[:4], "little")])
