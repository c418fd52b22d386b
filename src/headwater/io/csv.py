"""CSV: a record per row, fields divided by a comma or another sign."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, overload

from headwater.data.batch import Batch, stamped
from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError, InputError, listed, one_line, suggestion
from headwater.flow.endpoints import Refused, Reject
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.fields import column_of_texts, guess_from_texts, texts_of_column
from headwater.io.follow import FollowedLines
from headwater.io.lines import Lines, LineWriter
from headwater.io.sifting import sift
from headwater.io.text_file import WritableTextFile

log = logging.getLogger(__name__)

_GUESS_FROM = 1000  # lines
_SPAN = 100_000  # lines of a file that a quoted field may reach over; beyond, a quote was forgotten
_LIVE_SPAN = 64  # the same of lines that come as they are written: what follows a forgotten quote has to wait so long
_LONG = 2**31 - 1  # characters that a field may have: Python's own bound of 131,072 is less than we write

csv.field_size_limit(max(csv.field_size_limit(), _LONG))


class Csv(WritableTextFile):
    """A file of rows to read or to write; `-` is standard input or output.

    When read, columns are found by their names in the header (by order without one), and their types are
    guessed from the first rows unless a schema is given. A row with too few or too many fields, or a field
    that does not fit its column, is rejected with its line number. An empty field is missing (null), but in
    a text column it is the empty text. Moments may be ISO text or microseconds since 1970, and are written
    as ISO text. Writing replaces the file unless `append` is true; one that has another header is not appended to.

    With `follow` reading goes on as the file grows, also when it is rotated: renamed, or copied and cut off. A row is taken
    when its lines are whole; each file has a header of its own, on one line, and may have the columns in another order.
    """

    def __init__(
        self,
        path: str | Path,
        schema: Fields | None = None,
        header: bool = True,
        delimiter: str = ",",
        *,
        append: bool = False,
        follow: bool = False,
    ) -> None:
        super().__init__(path, schema, append=append, follow=follow)
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise FlowError(f"a CSV delimiter is one character, such as ',' or ';'; got {delimiter!r}")
        self.header, self.delimiter = header, delimiter

    def _guess_schema(self, lines: Lines) -> Schema:
        names, _, rows = self._head(lines)
        fitting = [row for row in rows if len(row) == len(names)]
        columns = list(zip(*fitting, strict=True)) or [()] * len(names)
        return Schema.of(dict(zip(names, map(guess_from_texts, columns), strict=True)))

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None, end: int | None = None) -> CsvReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> CsvWriter: ...
    def open(
        self, reject_or_schema: Reject | Schema, position: Any = None, end: int | None = None
    ) -> CsvReader | CsvWriter:
        """Start reading, from a position and up to a byte if they are given; with a schema instead, start writing."""
        if isinstance(reject_or_schema, Schema):
            return CsvWriter(self, reject_or_schema, append=self.append)
        schema = self.schema
        if self.follow:
            from headwater.io.followed_csv import FollowedCsvReader

            return FollowedCsvReader(self, reject_or_schema, position)
        lines, self._peeked = self._peeked or Lines(self.path), None
        names, header_lines, _ = self._head(lines) if self.header else (list(schema), 0, [])
        try:
            places = self.places_in(names)
        except InputError:
            lines.close()
            raise
        if position is not None:
            lines.close()
            lines = Lines(self.path, position, end)
        elif header_lines:
            lines.take(header_lines, 0)
        return CsvReader(self, lines, places, len(names), reject_or_schema)

    def places_in(self, names: list[str]) -> list[int]:
        """Return where in a row of these columns each of ours is; raises InputError if one is not there."""
        for name in self.schema:
            if name not in names:
                advice = f"its header has {listed(names)}{suggestion(name, names)}"
                raise InputError(f"cannot read {self.path}: there is no column {name!r}; {advice}")
        return [names.index(name) for name in self.schema]

    def _head(self, lines: Lines) -> tuple[list[str], int, list[list[str]]]:
        """Return the columns' names, how many lines the header takes, and the first rows."""
        texts = [
            line.decode(errors="replace") + "\n" for line in lines.peek(_GUESS_FROM, least=2 if self.header else 1)
        ]
        reader = csv.reader(texts, delimiter=self.delimiter)
        try:
            first = next(filter(None, reader), None)
        except csv.Error as error:
            raise self._unreadable(lines, f"line {reader.line_num}: {_reason_of(error)}") from None
        if first is None:
            raise self._unreadable(lines, "it is empty; expected a first row")
        if not self.header:
            return [f"c{place}" for place in range(1, len(first) + 1)], 0, [first, *_readable(reader)]
        names = [name.strip() or f"c{place}" for place, name in enumerate(first, start=1)]
        if twice := {name for name in names if names.count(name) > 1}:
            raise self._unreadable(lines, f"its header has {listed(twice)} more than once")
        return names, reader.line_num, list(_readable(reader))

    def _unreadable(self, lines: Lines, why: str) -> InputError:
        lines.close()
        return InputError(f"cannot read {self.path}: {why}")

    def appended(self, schema: Schema) -> CsvWriter:
        """Start writing at the end of what is there."""
        return CsvWriter(self, schema, append=True)

    def check_append(self, schema: Schema) -> None:
        """Raise InputError where rows of these columns would be appended under a header of others."""
        file = self._is_file() and Path(self.path).is_file()
        if not (self.header and file and os.access(self.path, os.R_OK)):
            return  # there is none yet, or nobody can tell: a file may be written and not read
        lines = Lines(self.path)
        try:
            texts = [line.decode(errors="replace") + "\n" for line in lines.peek(_LIVE_SPAN)]
        finally:
            lines.close()
        try:
            header = next(filter(None, csv.reader(texts, delimiter=self.delimiter)), None)
        except csv.Error:
            header = texts[:1]
        if header is not None and [name.strip() for name in header] != [name.strip() for name in schema]:
            header_text, schema_text = (one_line(self.delimiter.join(names).strip()) for names in (header, schema))
            raise InputError(
                f"cannot append to {self.path}: its header is {header_text}, and the columns to write are {schema_text}; "
                "write to another file, or select the columns in the order of the header"
            )

    def is_whole(self) -> bool:
        """Say whether all of it is there already: no pipe, and no file that is followed."""
        return self._is_file() and not self.follow

    def ranges(self, request: RangeRequest) -> Ranges | None:
        """Return the file in ranges of bytes, cut where no row goes over; a pipe has none, nor one that is followed."""
        from headwater.io.ranges.lines import CsvRanges

        if not self.is_whole():
            return None
        self.schema  # noqa: B018  guessed here once, not in every process that reads a range
        return CsvRanges(self, request.sizes)


class CsvReader:
    """An open file of rows."""

    def __init__(
        self, source: Csv, lines: Lines | FollowedLines, places: list[int], width: int, reject: Reject
    ) -> None:
        self._source, self._schema, self._lines, self._reject = source, source.schema, lines, reject
        self._places, self._width = places, width
        self._pending: list[bytes] = []  # lines that were taken and are no rows yet
        self._open = False  # whether they are of a row that has not ended
        self._span = _SPAN if source.is_whole() else _LIVE_SPAN

    def leave_halves(self) -> None:
        """Leave a last line that has no end for a later run, and a last row in a quote: they may be half written."""
        self._lines.whole = True

    @property
    def position(self) -> Any:
        """Where the next row starts."""
        pending = len(self._pending)
        before = self._lines.offset - sum(map(len, self._pending)) - pending
        return self._lines.position_at(before, self._lines.line - pending)

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the records of up to `limit` rows."""
        at_end = False
        if self._open or len(self._pending) < limit:
            fresh = self._take(limit, timeout_s)
            at_end = fresh is None
            goes_on = self._open and not at_end
            self._pending += fresh or []
            if not self._pending and at_end:
                return None
            if goes_on and len(self._pending) < self._span and not any(b'"' in line for line in fresh or ()):
                return self._batch([])
        lines = self._pending[:limit]
        try:
            rows = self._parse(lines)
            batch = self._batch(rows) if len(rows) == len(lines) else None
        except (csv.Error, ValueError, OverflowError):
            batch = None
        if batch is None:  # a row spans lines, or is bad: go one by one
            first = self._lines.line - len(self._pending) + 1
            patience = self._span if not at_end else _LIVE_SPAN if self._lines.whole else 0
            rows, self._pending = self._one_by_one(self._pending, first, limit, patience)
            if at_end and self._open and not rows:
                log.warning(
                    "the last row of %s is in a quote that is not closed yet: left for later", self._source.path
                )
                return None
            return self._batch(rows)
        self._pending = self._pending[limit:]
        return batch

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _take(self, limit: int, timeout_s: float) -> list[bytes] | None:
        """Return the next lines, none if none came in time, None after the last one."""
        return self._lines.take(limit, timeout_s)

    def _parse(self, lines: Sequence[bytes]) -> list[list[str]]:
        texts = b"\n".join([*lines, b""]).decode().split("\n")[:-1]
        return list(csv.reader([f"{t}\n" for t in texts], delimiter=self._source.delimiter, strict=True))

    def _batch(self, rows: Sequence[Sequence[str]]) -> Batch:
        """Make a batch; raises ValueError or OverflowError when a row does not fit."""
        if not set(map(len, rows)) <= {self._width}:
            raise ValueError("a row has too few or too many fields")
        columns = list(zip(*rows, strict=True)) or [()] * self._width
        by_name = {
            name: column_of_texts(columns[place], kind)
            for place, (name, kind) in zip(self._places, self._schema.fields, strict=True)
        }
        return Batch(by_name, len(rows), stamped(len(rows)))

    def _one_by_one(
        self, lines: list[bytes], first: int, limit: int, patience: int
    ) -> tuple[list[list[str]], list[bytes]]:
        """Return the good rows and the lines left over; reject the bad ones, each by its line number.

        A row in a quote that is not closed waits for the rest of it while it has less than `patience` lines.
        """
        rows: list[list[str]] = []
        at = 0
        self._open = False
        while at < len(lines) and len(rows) < limit:
            row, line_count, reason = self._next_row(lines, at)
            if reason == _OPEN and len(lines) - at < patience:
                self._open = True  # the rest of the row is still to come
                break
            if reason:
                self._reject(lines[at].decode(errors="replace"), f"{self._source.path} line {first + at}: {reason}")
            elif row:
                rows.append(row)
            at += line_count
        return rows, lines[at:]

    def _next_row(self, lines: Sequence[bytes], at: int) -> tuple[list[str], int, str]:
        """Return the row that begins there, how many lines it takes, and what is wrong with it, if anything."""
        try:
            first_line = lines[at].decode() + "\n"
            others = range(at + 1, min(len(lines), at + self._span))
            texts = chain([first_line], (lines[other].decode(errors="replace") + "\n" for other in others))
            reader = csv.reader(texts, delimiter=self._source.delimiter, strict=True)
            row = next(reader)
            return row, reader.line_num, self._reason(row) if row else ""
        except UnicodeDecodeError:
            return [], 1, "not UTF-8 text"
        except csv.Error as error:
            return [], 1, _reason_of(error)

    def _reason(self, row: list[str]) -> str:
        if len(row) != self._width:
            return f"expected {self._width} fields, got {len(row)}"
        for place, (name, kind) in zip(self._places, self._schema.fields, strict=True):
            try:
                column_of_texts((row[place],), kind)
            except (ValueError, OverflowError):
                return f"{name}: expected {kind}, got {row[place]!r}"
        return ""


_OPEN = "a quote is opened and never closed"
_CR = "a carriage return (CR) is inside the line: lines end in LF or CR LF; is it a file of an old Macintosh?"


def _reason_of(error: csv.Error) -> str:
    message = str(error)
    return _OPEN if "unexpected end" in message else _CR if "new-line character" in message else message


def _readable(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """Return the rows without those that are none: what is wrong with them is told where they are read."""
    while True:
        try:
            yield next(reader)
        except csv.Error:
            continue
        except StopIteration:
            return


class CsvWriter:
    """An open file that takes a row per record."""

    def __init__(self, sink: Csv, schema: Schema, *, append: bool) -> None:
        self._schema, self._delimiter = schema, sink.delimiter
        if append:
            sink.check_append(schema)  # before the file is opened, which ends its last line
        self.file = LineWriter(sink.path, append=append)
        if sink.header and self.file.empty:
            self.file.write(self._rows([list(schema)]))

    def write(self, batch: Batch) -> Refused:
        """Write the records whose values can be written, all or none."""
        rows, _, refusals = sift(batch, self._values)
        if rows:
            self.file.write(self._rows(rows))
        return refusals

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _values(self, batch: Batch) -> list[tuple[Any, ...]]:
        columns = [texts_of_column(batch[name], kind) for name, kind in self._schema.fields]
        return list(zip(*columns, strict=True))

    def _rows(self, rows: Sequence[Sequence[Any]]) -> bytes:
        text = StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="\n").writerows(rows)
        if "\r" in text.getvalue():  # which is left unquoted, though a reader takes it for the end of the row
            text = StringIO()
            csv.writer(text, delimiter=self._delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
        return text.getvalue().encode()
