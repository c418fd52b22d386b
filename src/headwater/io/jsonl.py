"""JSON Lines: a JSON object per line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, overload

import msgspec

from headwater.data.batch import Batch, stamped
from headwater.data.column import Text
from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError, InputError
from headwater.flow.endpoints import Refused, Reject
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.follow import FollowedLines
from headwater.io.json.columns import JsonColumns
from headwater.io.json.texts import JsonTexts, join
from headwater.io.lines import Lines, LineWriter
from headwater.io.records import guess_kind
from headwater.io.sifting import sift
from headwater.io.text_file import WritableTextFile

_GUESS_FROM = 1000  # lines


class JsonLines(WritableTextFile):
    """A file of JSON objects, one per line, to read or to write; `-` is standard input or output.

    When read, the columns are guessed from the first lines unless a schema is given. A line that is not an
    object of these columns is rejected with its number, a field that is absent is missing (null). Moments
    may be ISO text or microseconds since 1970, and are written as ISO text. Writing replaces the file unless
    `append` is true.

    With `follow` reading goes on as the file grows, also when it is rotated: renamed, or copied and cut off. A line is
    taken when it is whole.
    """

    def __init__(
        self, path: str | Path, schema: Fields | None = None, *, append: bool = False, follow: bool = False
    ) -> None:
        super().__init__(path, schema, append=append, follow=follow)

    def _guess_schema(self, lines: Lines) -> Schema:
        return guess_columns(lines.peek(_GUESS_FROM), self.path)

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None, end: int | None = None) -> JsonLinesReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> JsonLinesWriter: ...
    def open(
        self, reject_or_schema: Reject | Schema, position: Any = None, end: int | None = None
    ) -> JsonLinesReader | JsonLinesWriter:
        """Start reading, from a position and up to a byte if they are given; with a schema instead, start writing."""
        if isinstance(reject_or_schema, Schema):
            return JsonLinesWriter(LineWriter(self.path, append=self.append), reject_or_schema)
        schema = self.schema
        if self.follow:
            return JsonLinesReader(FollowedLines(self.path, position), schema, reject_or_schema, self.path)
        lines, self._peeked = self._peeked or Lines(self.path, position, end), None
        return JsonLinesReader(lines, schema, reject_or_schema, self.path)

    def appended(self, schema: Schema) -> JsonLinesWriter:
        """Start writing at the end of what is there."""
        return JsonLinesWriter(LineWriter(self.path, append=True), schema)

    def ranges(self, request: RangeRequest) -> Ranges | None:
        """Return the file in ranges of bytes; a pipe has none, nor one that is followed."""
        if not self._is_file() or self.follow:
            return None
        self.schema  # noqa: B018  guessed here once, not in every process that reads a range
        return super().ranges(request)


class JsonLinesReader:
    """An open file of JSON objects."""

    def __init__(self, lines: Lines | FollowedLines, schema: Schema, reject: Reject, path: str | Path) -> None:
        self._lines, self._schema, self._reject, self._path = lines, schema, reject, path
        self._columns = JsonColumns(schema)

    def leave_halves(self) -> None:
        """Leave a last line that has no end for a later run, since it may be half written."""
        self._lines.whole = True

    @property
    def position(self) -> list[int]:
        """Bytes and lines read so far, and of which file where it is followed."""
        return self._lines.position

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the records of up to `limit` lines."""
        before = self._lines.line
        lines = self._lines.take(limit, timeout_s)
        if lines is None:
            return None

        def refuse(number: int, line: bytes, reason: str) -> None:
            if line.strip():  # a blank line is nothing
                self._reject(line.decode(errors="replace"), f"{self._path} line {before + number + 1}: {reason}")

        columns, rows = self._columns.of(Text.of_bytes(lines), refuse)
        count = len(lines) if rows is None else len(rows)
        return Batch(columns, count, stamped(count))

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class JsonLinesWriter:
    """An open file that takes a JSON object per record."""

    def __init__(self, file: LineWriter, schema: Schema) -> None:
        self.file, self._texts = file, JsonTexts(schema)

    def write(self, batch: Batch) -> Refused:
        """Write the records that have a JSON form, all or none."""
        lines, _, refusals = sift(batch, self._texts.of)
        if len(lines):
            self.file.write(join(lines, b"\n") + b"\n")
        return refusals

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def guess_columns(lines: list[bytes], path: str | Path) -> Schema:
    """Guess names and types from the objects among some lines."""
    values: dict[str, list[Any]] = {}
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for line in lines:
        try:
            record = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # reading will reject it, with its number
        for name, value in record.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    if not values:
        raise InputError(
            f"cannot guess the columns of {path}: no JSON object among its first {len(lines)} lines; "
            "is it JSON Lines? Or give a schema, such as schema={'id': str, 'x': float}"
        )
    try:
        return Schema.of({name: guess_kind(column) for name, column in values.items()})
    except FlowError as error:
        raise InputError(f"cannot guess the columns of {path}: {error}") from None
