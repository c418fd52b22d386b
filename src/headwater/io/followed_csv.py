"""Rows of a CSV file that grows and is rotated: each file that takes its place begins with a header."""

from __future__ import annotations

import csv
from typing import Any

from headwater.data.batch import Batch, concat_batches
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.io.csv import Csv, CsvReader
from headwater.io.follow import FollowedLines


class FollowedCsvReader(CsvReader):
    """An open file of rows that has no end; a position has the columns of its file too, which stand at its beginning."""

    def __init__(self, source: Csv, reject: Reject, position: Any = None) -> None:
        at, names = _parse_position(position, source)
        self._follower = FollowedLines(source.path, at)
        self._names = names or list(source.schema)
        super().__init__(source, self._follower, source.places_in(self._names), len(self._names), reject)
        self._leftover: list[Batch] = []  # what was left of a file before the one that is read

    @property
    def position(self) -> list[Any]:
        """Where the next row starts, in which file, and what columns that has."""
        return [super().position, self._names]

    def read(self, limit: int, timeout_s: float) -> Batch:
        """Return the records of up to `limit` rows; none if none came in time."""
        batch = super().read(limit, timeout_s)
        assert batch is not None
        leftover, self._leftover = self._leftover, []
        return concat_batches([*leftover, batch])

    def _take(self, limit: int, timeout_s: float) -> list[bytes]:
        lines = self._follower.take(limit, timeout_s)
        if lines and self._follower.line == len(lines):  # the first of a file
            self._end_file()
            if self._source.header:
                self._read_header(lines.pop(0))
        return lines

    def _end_file(self) -> None:
        """Have done with a row that the file before ended in."""
        if self._pending:
            rows, _ = self._one_by_one(self._pending, 1, len(self._pending), patience=0)
            self._leftover.append(self._batch(rows))
            self._pending = []

    def _read_header(self, line: bytes) -> None:
        row = next(csv.reader([line.decode(errors="replace")], delimiter=self._source.delimiter), [])
        self._names = [name.strip() or f"c{place}" for place, name in enumerate(row, start=1)]
        self._places, self._width = self._source.places_in(self._names), len(self._names)


def _parse_position(position: Any, source: Csv) -> tuple[Any, list[str]]:
    match position:
        case None:
            return None, []
        case [[*at], [*names]]:
            return at, names
    raise InputError(f"cannot follow {source.path} from position {position!r}: was it read without follow=True then?")
