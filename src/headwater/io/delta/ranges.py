"""A Delta table read by its files: all that it has, and, if it is followed, what is added later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, RangeRequest
from headwater.io.delta import FOLDER
from headwater.io.delta.log import DeltaTable, Folder, commit_of
from headwater.io.delta.summary import Action
from headwater.io.files import explained
from headwater.io.ranges.files import FileRanges, check_columns, removal_error

_RECORDS = 2**14  # in a batch


class DeltaRanges(FileRanges):
    """The files of a table as it was when reading began, at the version `first` of an offset, and of each later commit.

    An offset counts the files of the version that it names; those of versions before it are read.
    """

    def __init__(self, path: Path, schema: Schema, request: RangeRequest, *, follow: bool) -> None:
        super().__init__(schema, request, follow=follow)
        self._path = path.absolute()
        self._cache: dict[
            tuple[int, bool], list[Action]
        ] = {}  #: files of versions, the first of which has all before it

    def start(self) -> Offset:
        """Return the first file of the table as it is now."""
        table = DeltaTable(Folder(self._path))
        if table.version < 0:
            raise InputError(f"cannot read {self._path}: it is no Delta table, which has a folder {FOLDER}")
        self._check(table)
        check_columns(self._path, self._schema, table.columns)
        return {"first": table.version, "version": table.version, "file": 0, "ended": False}

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read some files."""
        for path, values in piece:
            yield from self._read(self._path / unquote(path), dict(values))

    def _read(self, path: Path, values: dict[str, str | None]) -> Iterator[Batch]:
        from headwater.io.arrow import batch_of, parquet

        try:
            with parquet().ParquetFile(path) as file:
                there = [name for name in self._schema if name in file.schema_arrow.names]
                for rows in file.iter_batches(_RECORDS, columns=there):
                    yield batch_of(_complete(rows, self._schema, values), self._schema)
        except OSError as error:
            raise explained(error, path, "read") from error

    def _files(self, at: Offset) -> list[Action]:
        key = at["version"], at["version"] == at["first"]
        if key not in self._cache:
            self._cache = {each: files for each, files in self._cache.items() if each[1]}  # and of the last one only
            self._cache[key] = self._all_of(key[0]) if key[1] else self._added_by(key[0])
        return self._cache[key]

    def _behind(self, at: Offset) -> Offset | None:
        version = at["version"] + 1
        is_there = self._follow and (self._path / FOLDER / f"{version:020d}.json").exists()
        return {**at, "version": version, "file": 0} if is_there else None

    def _size(self, file: Action) -> int:
        return int(file["size"])

    def _part(self, at: Offset, file: Action) -> tuple[Any, ...]:
        return file["path"], _values(file)

    def _all_of(self, version: int) -> list[Action]:
        table = DeltaTable(Folder(self._path), version)
        self._check(table)
        return list(table.files.values())

    def _added_by(self, version: int) -> list[Action]:
        actions = commit_of(Folder(self._path), version)
        removals = [each["remove"] for each in actions if "remove" in each and each["remove"].get("dataChange", True)]
        if removals:
            raise removal_error(self._path, f"version {version}")
        return [each["add"] for each in actions if "add" in each and each["add"].get("dataChange", True)]

    def _check(self, table: DeltaTable) -> None:
        for file in table.files.values():
            if file.get("deletionVector"):
                raise InputError(f"cannot read {self._path}: some of its rows are deleted, by deletion vectors")
            if "://" in file["path"]:
                raise InputError(f"cannot read {self._path}: it has files of other tables, such as {file['path']}")


def _values(file: Action) -> tuple[tuple[str, str | None], ...]:
    """Return the columns whose value all records of a file have, which is not in the file."""
    values = file.get("partitionValues") or {}
    return tuple(values.items() if isinstance(values, dict) else map(tuple, values))


def _complete(rows: Any, schema: Schema, values: dict[str, str | None]) -> Any:
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
