"""Files of lines, cut by bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from headwater.data.batch import Batch
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, Ranges, Sizes
from headwater.io.files import explained
from headwater.io.text_file import TextFile, ignore

_RECORDS = 2**14  # in a batch
_CHUNK = 2**20  # bytes that are read at once
_LOOK = 2**16  # bytes that are looked at for the end of a line
_STEP = 256  # rows between two places where quoted rows may be cut


class _Bytes:
    """An open file in which the ends of lines are looked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise explained(error, path, "read") from error
        self.size = os.fstat(self._fd).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)

    def line_end(self, byte: int, after: int) -> int:
        """Return where the first line ends that reaches up to `byte`, or beyond it."""
        if after > self.size + 1:  # one more than its size: the last line had no end
            raise InputError(
                f"cannot read {self._path} from byte {after:,}: it has {self.size:,}; was the file replaced?"
            )
        at = max(byte - 1, after)
        while at < self.size:
            newline = (data := os.pread(self._fd, _LOOK, at)).find(b"\n")
            if newline >= 0:
                return at + newline + 1
            at += len(data)
        return self.size

    def checksum(self, start: int, stop: int, before: int = 0) -> int:
        """Return the checksum of all bytes up to a place, given that of those before the range."""
        while start < stop and (data := os.pread(self._fd, min(_CHUNK, stop - start), start)):
            before = crc32(data, before)
            start += len(data)
        return before

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Read a range of lines, in pieces that end where a line does."""
        while start < stop:
            end = min(stop, self.line_end(start + _CHUNK, start))
            yield os.pread(self._fd, end - start, start)
            start = end


class LineRanges(Ranges):
    """A file whose lines are records: cut wherever a line ends.

    Offsets count bytes, and lines for what is rejected; with them goes a checksum of all bytes before, by which a later
    run knows whether it has the same file.
    """

    has_end = True

    def __init__(self, source: TextFile, sizes: Sizes) -> None:
        self.source, self.sizes = source, sizes
        self.path = Path(source.path).absolute()

    def start(self) -> Offset:
        """Return where the first record begins: after the header of a file that has one."""
        reader = self.source.open(ignore)
        byte, line, *_ = reader.position
        reader.close()
        return self._offset({"byte": 0, "crc": 0}, byte, line, at_end=False)

    def advance(self, at: Offset) -> Offset:
        """Return the end of the next lines, at most a micro-batch of them; the end of the file is the end."""
        with _Bytes(self.path) as file:
            end = file.line_end(at["byte"] + self.sizes.batch_bytes, at["byte"])
            return self._offset(at, end, at["line"] + self._lines(file, at["byte"], end), at_end=end >= file.size)

    def _offset(self, after: Offset, byte: int, line: int, *, at_end: bool) -> Offset:
        with _Bytes(self.path) as file:
            crc = file.checksum(after["byte"], byte, after["crc"])
        return {"byte": byte, "line": line, "crc": crc, "ended": at_end}

    def offset(self, position: Any) -> Offset:
        """Return the place of bytes and lines; all before it is looked at, for the checksum."""
        if position is None:
            return self.start()
        byte, line, *_ = position
        return self._offset({"byte": 0, "crc": 0}, min(byte, self.path.stat().st_size), line, at_end=False)

    def share(self, at: Offset) -> float:
        """Return it by bytes."""
        return float(at["byte"] / max(1, self.path.stat().st_size))

    def position(self, at: Offset) -> list[int]:
        """Return the bytes and lines."""
        return [at["byte"], at["line"]]

    def _lines(self, file: _Bytes, start: int, stop: int) -> int:
        """Return how many lines begin in a range that begins with one."""
        return sum(self.source.counted(data) for data in file.chunks(start, stop))

    def changed(self, at: Offset) -> str:
        """Say if the file no longer begins with what was read of it; that it has grown does not matter."""
        with _Bytes(self.path) as file:
            size, crc = file.size, file.checksum(0, at["byte"])
        state = f"it has read {at['byte']:,} bytes of {self.path}"
        if size < at["byte"]:
            return f"{state}, which has {size:,} now; was the file replaced?"
        return (
            f"{state}, and these are not what they were; was the file replaced or edited?" if crc != at["crc"] else ""
        )

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return byte ranges of about equal size, each with the number of lines before it."""
        pieces: list[Piece] = []
        byte, line, size = start["byte"], start["line"], end["byte"] - start["byte"]
        count = self.sizes.pieces(size, self.sizes.piece_bytes)
        with _Bytes(self.path) as file:
            for number in range(1, count + 1):
                stop = min(end["byte"], file.line_end(start["byte"] + size * number // count, byte))
                if stop > byte:
                    pieces.append((byte, line, stop))
                    line += self._lines(file, byte, stop)
                    byte = stop
        return pieces

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read the lines of a piece."""
        byte, line, stop = piece
        reader = self.source.open(reject, [byte, line], stop)
        try:
            while (batch := reader.read(_RECORDS, 0)) is not None:
                yield batch
        finally:
            reader.close()


class CsvRanges(LineRanges):
    """A file of rows. With quotes in it, a row may go over several lines: it is cut only where the reader ends a row."""

    _quoted = True

    def start(self) -> Offset:
        """Return where the first row begins, and find out whether the file can be cut at every line."""
        with _Bytes(self.path) as file:
            self._quoted = any(b'"' in data for data in file.chunks(0, file.size))
        self.quick_to_cut = not self._quoted
        return super().start()

    def advance(self, at: Offset) -> Offset:
        """Return the end of the next rows."""
        if not self._quoted:
            return super().advance(at)
        [(byte, line)] = self._ends(at, [at["byte"] + self.sizes.batch_bytes])
        return self._offset(at, byte, line, at_end=byte >= self.path.stat().st_size)

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return byte ranges of about equal size."""
        if not self._quoted:
            return super().cut(start, end)
        size = end["byte"] - start["byte"]
        count = self.sizes.pieces(size, self.sizes.piece_bytes)
        targets = [start["byte"] + size * number // count for number in range(1, count)]
        places = [(start["byte"], start["line"]), *self._ends(start, targets), (end["byte"], end["line"])]
        return [(byte, line, stop) for (byte, line), (stop, _) in pairwise(places) if stop > byte]

    def _ends(self, start: Offset, targets: list[int]) -> list[tuple[int, int]]:
        """Return the first ends of rows at or after some bytes, as bytes and lines."""
        reader = self.source.open(ignore, [start["byte"], start["line"]])
        ends: list[tuple[int, int]] = []
        try:
            for byte in targets:
                while reader.position[0] < byte and reader.read(_STEP, 0) is not None:
                    pass
                ends.append((reader.position[0], reader.position[1]))
        finally:
            reader.close()
        return ends
