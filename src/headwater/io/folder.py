"""A folder into which files are put, read one after another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, get_args

from headwater.data.batch import Batch, stamped
from headwater.data.column import Text, column_of
from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError, InputError, listed, suggestion
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import Reader, Reject, Resume, Source, open_reader, position_of
from headwater.flow.identity import Identity, path_of
from headwater.flow.places import Place
from headwater.io.csv import Csv
from headwater.io.files import explained
from headwater.io.jsonl import JsonLines
from headwater.io.lines import Lines
from headwater.io.parquet import Parquet

log = logging.getLogger(__name__)

Form = Literal["csv", "jsonl", "parquet", "lines"]
Order = Literal["name", "time"]
_ENDINGS: dict[str, Form] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "lines",
    ".log": "lines",
}
_UNFINISHED = (".tmp", ".part", ".partial", ".new", ".crdownload", ".swp", "~")  #: how names of files being written end
_LOOK_S = 0.1  #: between two looks at the folder
_LINE = Schema.of({"line": str})


class Folder:
    """A folder of files, each read once, in the order of their names or of when they were last written (`order="time"`).

    The ending of a file says what it is: CSV, JSON Lines, Parquet, or lines of text (.txt and .log, a column `line`); `form`
    says it for all, by name or as a function from a path to a source, such as `lambda path: io.Csv(path, delimiter=";")`.
    The columns are those of `schema`, or of the first file. `file_column` adds the name of a record's file.

    A file is read when it is complete: its name does not begin with `.` or `_` nor end like one being written (.tmp, .part
    and the like), and nothing was written to it for `settled`. Best is to write elsewhere or under such a name, and rename.
    With `follow` reading goes on with files that are added, whatever their names; what is added to a file that was read
    is not. A file that cannot be read at all is a dead letter, with its path. After a restart reading goes on in the file
    where it was; files that were read are known by name as long as they are there.
    """

    resume: Resume = "position"

    def __init__(
        self,
        path: str | Path,
        pattern: str = "*",
        schema: Fields | None = None,
        *,
        form: Form | Callable[[Path], Source] | None = None,
        order: Order = "name",
        file_column: str | None = None,
        follow: bool = False,
        settled: Duration = "1 s",
    ) -> None:
        if form is not None and not callable(form) and form not in get_args(Form):
            raise FlowError(
                f"form is one of {listed(get_args(Form))} or a function; got {form!r}{suggestion(form, get_args(Form))}"
            )
        if order not in get_args(Order):
            raise FlowError(f"order is one of {listed(get_args(Order))}; got {order!r}")
        if "/" in pattern:
            raise FlowError(f"pattern is for the names of files in {path}, such as '*.csv'; got {pattern!r}")
        self.path, self.pattern, self.form, self.order, self.follow = Path(path), pattern, form, order, follow
        self.file_column, self.settled_s = file_column, microseconds(settled) / 1e6
        self._own_schema = None if schema is None else Schema.of(schema)

    @property
    def fields(self) -> Schema:
        """The columns that the files have."""
        if self._own_schema is None:
            for name in self.names():
                self._own_schema = self.source_of(name).schema
                break
            else:
                raise InputError(
                    f"cannot tell the columns of {self}: no file is there yet; give a schema, such as "
                    "schema={'id': str, 'x': float}"
                )
        return self._own_schema

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self.fields if self.file_column is None else self.fields.with_fields({self.file_column: str})

    def open(self, reject: Reject, position: Any = None) -> FolderReader:
        """Start reading, behind a position if one is given."""
        return FolderReader(self, reject, position)

    def check_read(self) -> None:
        """Raise what is wrong with the folder."""
        self.names()

    def names(self) -> list[str]:
        """Return the names of the files that could be read, in their order."""
        entries = []
        try:
            for each in self.path.iterdir():
                name = each.name
                if name.startswith((".", "_")) or name.endswith(_UNFINISHED) or not fnmatch(name, self.pattern):
                    continue
                if each.is_file():
                    entries.append((each.stat().st_mtime_ns if self.order == "time" else 0, name))
        except FileNotFoundError as error:
            if not self.path.is_dir():  # else a file went while we looked
                raise explained(error, self.path, "read") from error
        except OSError as error:
            raise explained(error, self.path, "read") from error
        return [name for _, name in sorted(entries)]

    def source_of(self, name: str) -> Source:
        """Return one of the files as a source."""
        path = self.path / name
        form = self.form or _ENDINGS.get(path.suffix.lower())
        if callable(form):
            return form(path)
        match form:
            case "csv":
                return Csv(path, self._own_schema)
            case "jsonl":
                return JsonLines(path, self._own_schema)
            case "parquet":
                return Parquet(path)
            case "lines":
                return _LinesFile(path)
        raise InputError(
            f"cannot tell the form of {path} from its name; known endings are {listed(_ENDINGS)}. Give a pattern, or form="
        )

    @property
    def identity(self) -> Identity:
        """The folder; which files were read is in its position."""
        return {"path": path_of(self.path), "pattern": self.pattern}

    def claims(self, *, writing: bool) -> Place:
        """Return the folder."""
        return Place.of_file(self.path)

    def __str__(self) -> str:
        return str(self.path / self.pattern)


class FolderReader:
    """An open folder: the file that is read, and the names of those that were."""

    def __init__(self, source: Folder, reject: Reject, position: Any = None) -> None:
        self._source, self._reject = source, reject
        self._schema, self._fields = source.schema, source.fields
        self._read_names: tuple[str, ...] = ()
        self._name, self._at = "", None  # the file that is read, and where
        self._reader: Reader | None = None
        self._stats: dict[str, tuple[int, int, float]] = {}  # size and time of files, and since when they are so
        self._look_s = -_LOOK_S
        if position is not None:
            names, self._name, self._at = _parse_position(position, source)
            self._read_names = tuple(names)
            if self._name and not (source.path / self._name).exists():
                log.warning("%s is gone, which was read in part; reading goes on with what is there", self._name)
                self._name, self._at = "", None
        source.names()  # tells what is wrong with the folder before anything runs

    @property
    def position(self) -> list[Any]:
        """The files that were read and are still there, the one that is read, and where in it."""
        return [self._read_names, self._name, self._at]

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return records of one file; none if none came in time, None after the last file unless more may come."""
        until_s = time.monotonic() + timeout_s
        while True:
            if self._reader is None and not self._begin():
                return None
            if self._reader is not None:
                batch = self._records(limit, timeout_s)
                if batch is not None:
                    return batch
            elif time.monotonic() >= until_s:
                return Batch.none(self._schema)
            else:
                time.sleep(min(_LOOK_S, max(0.0, until_s - time.monotonic())))

    def close(self) -> None:
        """Close the file that is read."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _begin(self) -> bool:
        """Open the next file that is complete, if one is; False if nothing will ever come."""
        if self._name:
            self._open(self._name)
            return True
        if time.monotonic() < self._look_s + _LOOK_S and self._stats:
            return True
        self._look_s = time.monotonic()
        names = self._source.names()
        read_names = set(self._read_names)
        if not read_names <= set(names):  # who is gone need not be known
            self._read_names = tuple(name for name in self._read_names if name in set(names))
        waiting = [name for name in names if name not in read_names]
        self._stats = {name: stat for name, stat in self._stats.items() if name in set(waiting)}
        for name in waiting:
            if self._is_settled(name):
                self._at = None
                self._open(name)
                return True
            if self._source.order == "name" and not self._source.follow:
                break  # nothing overtakes it
        return bool(waiting) or self._source.follow

    def _is_settled(self, name: str) -> bool:
        """Tell whether nothing was written to a file for a while, by its time or as far as we have seen."""
        try:
            stat = (self._source.path / name).stat()
        except FileNotFoundError:
            return False
        settled_s, now_s = self._source.settled_s, time.monotonic()
        if 0 <= settled_s <= time.time() - stat.st_mtime:
            return True
        size, moment, since_s = self._stats.get(name, (-1, -1, now_s))
        if (size, moment) != (stat.st_size, stat.st_mtime_ns):
            since_s = now_s
        self._stats[name] = (stat.st_size, stat.st_mtime_ns, since_s)
        return now_s - since_s >= settled_s

    def _open(self, name: str) -> None:
        self._name = name
        try:
            source = self._source.source_of(name)
            missing = [each for each in self._fields if each not in source.schema]
            if missing:
                raise InputError(f"{source} has no column {listed(missing)}; its columns are ({source.schema})")
            others = [
                f"{each} {source.schema[each]}" for each, kind in self._fields.fields if source.schema[each] != kind
            ]
            if others:
                raise InputError(f"{source} has columns of other types than ({self._fields}): {', '.join(others)}")
            self._reader = open_reader(source, self._reject, self._at)
            self._at = position_of(self._reader)
        except InputError as error:
            if not (self._source.path / name).exists():
                log.warning("%s went before it was read", name)
                self._name = ""
                return
            self._reject(str(self._source.path / name), str(error))
            self._finish()

    def _records(self, limit: int, timeout_s: float) -> Batch | None:
        """Return records of the file that is open; None at its end."""
        assert self._reader is not None
        try:
            batch = self._reader.read(limit, timeout_s)
        except InputError as error:  # half of it may have been read
            self._reject(str(self._source.path / self._name), str(error))
            batch = None
        if batch is None:
            self._finish()
            return None
        self._at = position_of(self._reader)
        columns = {name: batch[name] for name in self._fields}
        if self._source.file_column is not None:
            column = self._source.file_column
            columns[column] = column_of([self._name] * batch.length, "text", name=column)
        return Batch(columns, batch.length, batch.stamps)

    def _finish(self) -> None:
        self.close()
        self._read_names, self._name, self._at = (*self._read_names, self._name), "", None
        self._look_s = -_LOOK_S


class _LinesFile:
    """A file of lines, each of which is a record."""

    schema = _LINE
    resume: Resume = "position"

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, reject: Reject, position: Any = None) -> _LinesReader:
        return _LinesReader(Lines(self._path, position), reject, self._path)

    def __str__(self) -> str:
        return str(self._path)


class _LinesReader:
    def __init__(self, lines: Lines, reject: Reject, path: Path) -> None:
        self._lines, self._reject, self._path = lines, reject, path

    @property
    def position(self) -> list[int]:
        return self._lines.position

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        before = self._lines.line
        lines = self._lines.take(limit, timeout_s)
        if lines is None:
            return None
        good = []
        for number, line in enumerate(lines, start=before + 1):
            try:
                line.decode()
                good.append(line.removesuffix(b"\r"))
            except UnicodeDecodeError:
                self._reject(line.decode(errors="replace"), f"{self._path} line {number}: not UTF-8 text")
        return Batch({"line": Text.of_bytes(good)}, len(good), stamped(len(good)))

    def close(self) -> None:
        self._lines.close()


def _parse_position(position: Any, source: Folder) -> tuple[list[str], str, Any]:
    match position:
        case [[*names], str(name), at]:
            return names, name, at
    raise InputError(
        f"cannot read {source} from position {position!r}: expected files that were read, a file and a place"
    )
