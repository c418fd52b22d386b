"""A Delta table read by its files: all that it has, and, if it is followed, what is added later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError, listed, suggestion
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, RangeRequest, Ranges
from headwater.io.delta import FOLDER
from headwater.io.delta.log import DeltaTable, Folder, commit_of
from headwater.io.delta.summary import Action
from headwater.io.files import explained

_RECORDS = 2**14  # in a batch


class DeltaRanges(Ranges):
    """The files of a table as it was when reading began, at the version `first` of an offset, and of each later commit.

    An offset counts the files of the version that it names; those of versions before it are read.
    """

    def __init__(self, path: Path, schema: Schema, wanted: RangeRequest, *, follow: bool) -> None:
        self._path, self._follow, self.sizes = path.absolute(), follow, wanted.sizes
        self._schema = schema if wanted.columns is None else schema.only(wanted.columns)
        self.columns = tuple(self._schema) if len(self._schema) < len(schema) else None
        self._known: dict[
            tuple[int, bool], list[Action]
        ] = {}  #: files of versions, the first of which has all before it

    def start(self) -> Offset:
        """Return the first file of the table as it is now."""
        table = DeltaTable(Folder(self._path))
        if table.version < 0:
            raise InputError(f"cannot read {self._path}: it is no Delta table, which has a folder {FOLDER}")
        self._check(table)
        self._check_columns(table)
        return {"first": table.version, "version": table.version, "file": 0, "ended": False}

    def advance(self, at: Offset) -> Offset:
        """Return the file up to which the next micro-batch reads."""
        first, version, file = at["first"], at["version"], at["file"]
        left = self.sizes.batch_bytes
        while left > 0:
            files = self._files(first, version)
            if file < len(files):
                left -= files[file]["size"]
                file += 1
            elif self._follow and self._is_there(version + 1):
                version, file = version + 1, 0
            else:
                break
        ended = not self._follow and file >= len(self._files(first, version))
        return {"first": first, "version": version, "file": file, "ended": ended}

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return files, in pieces of about equal size."""
        files: list[Action] = []
        for version in range(start["version"], end["version"] + 1):
            begin = start["file"] if version == start["version"] else 0
            stop = end["file"] if version == end["version"] else None
            files += self._files(start["first"], version)[begin:stop]
        size = sum(file["size"] for file in files)
        count = self.sizes.pieces(size, self.sizes.piece_bytes)
        pieces: list[list[Any]] = [[] for _ in range(count)]
        before = 0
        for file in files:
            pieces[min(count - 1, before * count // max(1, size))].append((file["path"], _values(file)))
            before += file["size"]
        return [tuple(piece) for piece in pieces if piece]

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read some files."""
        for path, values in piece:
            yield from self._read(self._path / unquote(path), dict(values))

    def share(self, at: Offset) -> float | None:
        """Return it by files, where no more are waited for."""
        return None if self._follow else at["file"] / max(1, len(self._files(at["first"], at["version"])))

    def _read(self, path: Path, values: dict[str, str | None]) -> Iterator[Batch]:
        from headwater.io.arrow import batch_of, parquet

        try:
            with parquet().ParquetFile(path) as file:
                there = [name for name in self._schema if name in file.schema_arrow.names]
                for rows in file.iter_batches(_RECORDS, columns=there):
                    yield batch_of(_completed(rows, self._schema, values), self._schema)
        except OSError as error:
            raise explained(error, path, "read") from error

    def _files(self, first: int, version: int) -> list[Action]:
        key = version, version == first
        if key not in self._known:
            self._known = {each: files for each, files in self._known.items() if each[1]}  # and of the last one only
            self._known[key] = self._all_of(version) if version == first else self._added_by(version)
        return self._known[key]

    def _all_of(self, version: int) -> list[Action]:
        table = DeltaTable(Folder(self._path), version)
        self._check(table)
        return list(table.files.values())

    def _added_by(self, version: int) -> list[Action]:
        actions = commit_of(Folder(self._path), version)
        gone = [each["remove"] for each in actions if "remove" in each and each["remove"].get("dataChange", True)]
        if gone:
            raise InputError(
                f"records were taken out of {self._path} in version {version}, which a stream that has read them cannot "
                "take back; begin anew with another checkpoint"
            )
        return [each["add"] for each in actions if "add" in each and each["add"].get("dataChange", True)]

    def _is_there(self, version: int) -> bool:
        return (self._path / FOLDER / f"{version:020d}.json").exists()

    def _check_columns(self, table: DeltaTable) -> None:
        found = table.columns
        for name in self._schema:
            if name not in found:
                told = f"columns are {listed(found)}{suggestion(name, found)}"
                raise InputError(f"cannot read {self._path}: it has no column {name!r}; {told}")

    def _check(self, table: DeltaTable) -> None:
        for file in table.files.values():
            if file.get("deletionVector"):
                raise InputError(f"cannot read {self._path}: some of its rows are deleted, by deletion vectors")
            if "://" in file["path"]:
                raise InputError(f"cannot read {self._path}: it has files of other tables, such as {file['path']}")


def _values(file: Action) -> tuple[tuple[str, str | None], ...]:
    """Return the columns whose value all records of a file have, which is not in the file."""
    said = file.get("partitionValues") or {}
    return tuple(said.items() if isinstance(said, dict) else map(tuple, said))


def _completed(rows: Any, schema: Schema, values: dict[str, str | None]) -> Any:
    """Return rows with all columns: of what the file does not have, the value that all of them have, or none."""
    import pyarrow as pa

    from headwater.io.arrow import ARROW

    columns = {}
    for name, kind in schema.fields:
        if name in rows.schema.names:
            columns[name] = rows.column(name)
        else:
            columns[name] = pa.array([values.get(name)] * rows.num_rows, pa.string()).cast(ARROW[kind])
    return pa.table(columns)
