"""A log on disk: what a source that cannot be read twice has said, so that Spark can read it as often as it must.

Files of entries, one after the other. An entry is a batch of records or of dead letters, with the source's position
after it and a checksum. Beside them, a small file says how far the log is safe on disk: nobody reads beyond.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from headwater.data.batch import Batch
from headwater.data.frames import PREFIX, pack, unpack
from headwater.errors import InputError
from headwater.io.files import explained, write_all

_HEAD = Struct("<IIIi")  # checksum of what follows, bytes of the position, bytes of the frame, the output
_SEGMENT_BYTES = 64 * 2**20

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class Place(NamedTuple):
    """A place between two entries."""

    segment: int
    byte: int


class End(NamedTuple):
    """How far a log goes: the place after its last safe entry, the source's position there, and if that is all."""

    place: Place = Place(0, 0)
    position: Any = None
    ended: bool = False


class LogWriter:
    """An open log, to which one process appends; what was cut short when the last one died is taken away."""

    def __init__(self, folder: Path, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self._folder, self._segment_bytes = folder, segment_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.end = end_of(folder)  #: where the log ends, entries that are not yet safe included
            self._recover()
        except OSError as error:
            raise explained(error, folder, "keep a log in") from error

    @property
    def nbytes(self) -> int:
        """Bytes on disk that are not trimmed yet."""
        return sum(_path(self._folder, number).stat().st_size for number in segments(self._folder))

    def append(self, port: int, batch: Batch, position: Any) -> None:
        """Add an entry; readers see it after `sync`."""
        said, frame = _encode(position), pack(batch)
        rest = _HEAD.pack(0, len(said), len(frame), port)[4:] + said + frame
        write_all(self._fd, crc32(rest).to_bytes(4, "little") + rest, self._folder)
        segment, byte = self.end.place
        self.end = End(Place(segment, byte + 4 + len(rest)), position)

    def sync(self, *, ended: bool = False) -> None:
        """Have all entries safe on disk, then let readers know; `ended` says that these were the last."""
        os.fsync(self._fd)
        segment, byte = self.end.place
        if byte >= self._segment_bytes and not ended:
            os.close(self._fd)
            self.end = self.end._replace(place=Place(segment + 1, 0))
            self._open()
        self._publish(self.end._replace(ended=ended))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _recover(self) -> None:
        """Go on after the last whole entry: what is behind the known end is safe if its checksum is right."""
        for number in segments(self._folder):
            if number > self.end.place.segment:  # begun, and not yet known to anybody
                _path(self._folder, number).unlink()
        self._open()
        segment, byte = self.end.place
        data = os.pread(self._fd, os.fstat(self._fd).st_size - byte, byte)
        for size, position in _whole(data):
            self.end = End(Place(segment, byte + size), position, self.end.ended)
        os.ftruncate(self._fd, self.end.place.byte)
        os.lseek(self._fd, 0, os.SEEK_END)
        self._publish(self.end)

    def _open(self) -> None:
        self._fd = os.open(_path(self._folder, self.end.place.segment), os.O_RDWR | os.O_CREAT, 0o666)

    def _publish(self, end: End) -> None:
        self.end = end
        fresh = self._folder / "end.new"
        fresh.write_bytes(_encode(end))
        fresh.replace(self._folder / "end")


def end_of(folder: Path) -> End:
    """Return how far a log goes for its readers."""
    try:
        (segment, byte), position, ended = _decode((folder / "end").read_bytes())
    except FileNotFoundError:
        return End()
    return End(Place(segment, byte), position, ended)


def segments(folder: Path) -> list[int]:
    """Return the numbers of the files that are there, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def trim(folder: Path, place: Place) -> None:
    """Remove the files that end before a place."""
    for number in segments(folder):
        if number < place.segment:
            _path(folder, number).unlink(missing_ok=True)


def spans(folder: Path, start: Place, end: Place, most_bytes: int) -> list[tuple[int, int, int]]:
    """Return the ranges between two places: file, first byte, end; of whole entries, about `most_bytes` each."""
    found: list[tuple[int, int, int]] = []
    for number in range(start.segment, end.segment + 1):
        begin = start.byte if number == start.segment else 0
        at = begin
        with _opened(folder, number) as file:
            stop = end.byte if number == end.segment else os.fstat(file.fileno()).st_size
            while at < stop:
                _, position, frame, _ = _HEAD.unpack(os.pread(file.fileno(), _HEAD.size, at))
                at += _HEAD.size + position + frame
                if at - begin >= most_bytes:
                    found.append((number, begin, at))
                    begin = at
        if at > begin:
            found.append((number, begin, at))
    return found


def read_span(folder: Path, span: tuple[int, int, int]) -> bytes:
    """Return the bytes of a range."""
    number, begin, stop = span
    with _opened(folder, number) as file:
        return os.pread(file.fileno(), stop - begin, begin)


def entries(data: bytes) -> Iterator[tuple[int, Batch]]:
    """Return the entries of a range: the output that each belongs to, and its batch."""
    at = 0
    for size, _ in _whole(data):
        _, position, _, port = _HEAD.unpack_from(data, at)
        frame = at + _HEAD.size + position
        _, header = PREFIX.unpack_from(data, frame)
        # a copy, so that steps may write to the columns and that these begin where arrays must
        yield port, unpack(np.frombuffer(bytearray(data[frame + PREFIX.size : size]), np.uint8), header)
        at = size
    if at != len(data):
        raise InputError(f"the log of a source is damaged: an entry at byte {at:,} of a range has a wrong checksum")


def _whole(data: bytes) -> Iterator[tuple[int, Any]]:
    """Return where each whole entry ends, and the source's position after it; stops at one that is cut short or damaged."""
    at = 0
    while at + _HEAD.size <= len(data):
        checksum, position, frame, _ = _HEAD.unpack_from(data, at)
        middle, stop = at + _HEAD.size + position, at + _HEAD.size + position + frame
        if stop > len(data) or crc32(memoryview(data)[at + 4 : stop]) != checksum:
            return
        yield stop, _decode(memoryview(data)[at + _HEAD.size : middle])
        at = stop


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.log"


def _opened(folder: Path, number: int) -> Any:
    try:
        return _path(folder, number).open("rb")
    except OSError as error:
        raise InputError(
            f"the log of a source in {folder} lacks its file {number}: {error.strerror}; was the checkpoint copied in part?"
        ) from error
