"""A table: a folder of Parquet files, as data lakes keep them, in sub-folders by the values of some columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote

import numpy as np

from headwater.errors import FlowError
from headwater.flow.batch import Batch, concat_batches
from headwater.flow.column import Array
from headwater.flow.schema import Schema
from headwater.io.fields import texts_of_column
from headwater.io.files import explained

_ROWS = 2**16  # gathered for a file, which a table with many small ones would be slow to read
_MISSING = "__HIVE_DEFAULT_PARTITION__"  # what other systems write for no value


class ParquetTable:
    """A folder of Parquet files to add records to.

    With `by`, records lie in sub-folders named after the values of these columns (`city=rome/`), which Spark, Arrow and
    others take for columns again; such columns are better texts or whole numbers of few values. Every file appears
    whole or not at all. On Spark each task writes files of its own, and all of a micro-batch appear or none.
    """

    def __init__(self, path: str | Path, by: str | Sequence[str] = ()) -> None:
        self.path = Path(path)
        self.by = (by,) if isinstance(by, str) else tuple(by)

    def open(self, schema: Schema) -> TableWriter:
        """Start writing."""
        self.check(schema)
        return TableWriter(self, schema)

    def check(self, schema: Schema) -> None:
        """Raise FlowError where the columns do not fit."""
        for name in self.by:
            if schema.type_of(name, what=f"table {self.path}") in ("any", "float", "float32"):
                raise FlowError(
                    f"table {self.path} lies in folders by column {name!r}, which is {schema[name]}: too many"
                )
        if len(self.by) == len(schema):
            raise FlowError(f"table {self.path} has no column left beside those of its folders")

    def __str__(self) -> str:
        return str(self.path)


class TableWriter:
    """An open table; records are gathered, and on disk when they are enough for a file or it is closed."""

    def __init__(self, table: ParquetTable, schema: Schema) -> None:
        self._table, self._schema = table, schema
        self._stem = f"part-{token_hex(4)}"
        self._files = 0
        self._gathered: list[Batch] = []
        _make(table.path)

    def write(self, batch: Batch) -> None:
        """Take the records."""
        self._gathered.append(batch)
        if sum(map(len, self._gathered)) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered."""
        gathered, self._gathered = self._gathered, []
        if any(map(len, gathered)):
            self._files += 1
            name = f"{self._stem}-{self._files:05d}.parquet"
            hidden = f".{name}.{os.getpid()}"
            for folder, _ in write_parts(
                concat_batches(gathered), self._schema, self._table.by, self._table.path, hidden
            ):
                place = self._table.path / folder
                (place / hidden).replace(place / name)

    def close(self) -> None:
        """Write what is left."""
        self.flush()


def write_parts(batch: Batch, schema: Schema, by: Sequence[str], place: Path, name: str) -> list[tuple[str, int]]:
    """Write records to one file in each of the folders they belong to; return the folders, and how many records each got."""
    import pyarrow.parquet as pq

    from headwater.io.arrow import table_of

    kept = schema.only(tuple(column for column in schema if column not in by))
    written = []
    for folder, part in _split(batch, schema, by):
        _make(place / folder)
        try:
            pq.write_table(table_of(part, kept), place / folder / name)
        except OSError as error:
            (place / folder / name).unlink(missing_ok=True)
            raise explained(error, place / folder / name, "write") from error
        written.append((folder, part.length))
    return written


def _split(batch: Batch, schema: Schema, by: Sequence[str]) -> list[tuple[str, Batch]]:
    """Return the folders that the records belong to, each with its records in their order."""
    if not by:
        return [("", batch)]
    codes = np.zeros(batch.length, np.int64)
    for name in by:
        column = _codes(batch, schema, name)
        _, codes = np.unique(codes * (int(column.max()) + 1) + column, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    return [(_folder(part, schema, by), part) for part in (batch.take(rows) for rows in np.split(order, bounds))]


def _codes(batch: Batch, schema: Schema, name: str) -> Array:
    """Return a small number for each value of a column, the same for equal ones."""
    from headwater.io.arrow import table_of

    column = table_of(batch, schema.only((name,))).column(name).combine_chunks()
    encoded = column.dictionary_encode(null_encoding="encode")
    codes: Array = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _folder(part: Batch, schema: Schema, by: Sequence[str]) -> str:
    first = part.slice(0, 1)
    texts = [(name, texts_of_column(first[name], schema[name])[0]) for name in by]
    return "/".join(f"{name}={_MISSING if text in (None, '') else quote(str(text), safe=' ')}" for name, text in texts)


def _make(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explained(error, place, "write") from error
