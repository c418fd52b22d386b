"""A table: a folder of Parquet files, as data lakes keep them, in sub-folders by the values of some columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import numpy as np

from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Text, parts
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.flow.endpoints import DeliverySemantics, Ledger, Refused, Transaction
from headwater.flow.places import Place
from headwater.io.buffered_writer import BufferedWriter
from headwater.io.fields import texts_of_column
from headwater.io.files import check_no_file, explained
from headwater.io.sifting import storable, without

_MISSING = "__HIVE_DEFAULT_PARTITION__"  # what other systems write for no value
_EMPTY = "__EMPTY__"
_LONGEST, _LONGEST_PATH = 255, 4096  # bytes of a name and a path, where the file system does not say
#: what Hive and Spark write as %XX, and nothing else: of other characters Spark would make two when it reads them
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")


class ParquetTable:
    """A folder of Parquet files to add records to.

    With `by`, records lie in sub-folders named after the values of these columns (`city=rome/`), which Spark, Arrow and
    others take for columns again; such columns are better texts or whole numbers of few values. Characters that a
    folder's name cannot hold are written as `%2F`, as Hive does. A missing value is `__HIVE_DEFAULT_PARTITION__`, the
    empty text `__EMPTY__`: Spark reads no table that has a folder `city=`. A record whose folder's name would be longer
    than the file system allows is refused. Every file appears whole or not at all. On Spark each task writes files of
    its own, and all of a micro-batch appear or none.
    """

    writers = "many"  # each adds files of its own
    delivery: DeliverySemantics = "transactional"
    apart = True
    staged = True

    def __init__(self, path: str | Path, by: str | Sequence[str] = ()) -> None:
        self.path = Path(path)
        self.by = (by,) if isinstance(by, str) else tuple(by)

    def open(self, schema: Schema) -> TableWriter:
        """Start writing."""
        self.check_write(schema)
        return TableWriter(self, schema)

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Start writing in parts: the files of one appear together."""
        from headwater.io.transactions.table import TableParts

        self.check_write(schema)
        return TableParts(self.path, schema, self.by, ledger, anew=False)

    def check_place(self, in_parts: bool) -> None:
        """Raise what is wrong with where it writes."""
        check_no_file(self.path, "a table is a folder of files")

    def check_write(self, schema: Schema) -> None:
        """Raise FlowError where the columns do not fit."""
        for name in self.by:
            if schema.type_of(name, what=f"table {self.path}") in ("any", "float", "float32"):
                raise FlowError(
                    f"table {self.path} lies in folders by column {name!r}, which is {schema[name]}: too many"
                )
        if len(self.by) == len(schema):
            raise FlowError(f"table {self.path} has no column left beside those of its folders")

    def claims(self, *, writing: bool) -> Place:
        """Return the folder that it adds to."""
        return Place.of_file(self.path)

    def __str__(self) -> str:
        return str(self.path)


class TableWriter(BufferedWriter):
    """An open table; records are gathered, and on disk when they are enough for a file or it is closed."""

    def __init__(self, table: ParquetTable, schema: Schema) -> None:
        super().__init__()
        self._table, self._schema = table, schema
        self._stem = f"part-{token_hex(4)}"
        self._files = 0
        _make(table.path)

    def _sift(self, batch: Batch) -> tuple[Batch, Refused]:
        return writable(batch, self._schema, self._table.by, self._table.path)

    def flush(self) -> None:
        """Write what is gathered; what cannot be written stays to be written later."""
        if not self._waiting():
            return
        self._files += 1
        name = f"{self._stem}-{self._files:05d}.parquet"
        temporary = f".{name}.{os.getpid()}"
        batch, place = concat_batches(self._batches), self._table.path
        parts = write_parts(batch, self._schema, self._table.by, place, temporary)
        for count, (folder, _) in enumerate(parts):
            try:
                (place / folder / temporary).replace(place / folder / name)
            except OSError as error:
                rest = parts[count:]
                self._batches = [batch.take(np.concatenate([rows for _, rows in rest]))]
                _remove(place / folder / temporary for folder, _ in rest)
                raise explained(error, place / folder / name, "write") from error
        self._batches = []


def write_parts(batch: Batch, schema: Schema, by: Sequence[str], place: Path, name: str) -> list[tuple[str, Array]]:
    """Write records to one file in each of the folders they belong to, all or none; return the folders and their rows."""
    from headwater.io.arrow import parquet, table_of

    pq = parquet()
    columns = schema.only(tuple(column for column in schema if column not in by))
    parts: list[tuple[str, Array]] = []
    try:
        for folder, rows in _split(batch, schema, by):
            parts.append((folder, rows))
            _make(place / folder)
            pq.write_table(table_of(batch.take(rows), columns), place / folder / name)
    except (OSError, InputError) as error:
        _remove(place / folder / name for folder, _ in parts)
        if isinstance(error, InputError):
            raise
        raise explained(error, place / parts[-1][0] / name, "write") from error
    return parts


def writable(batch: Batch, schema: Schema, by: Sequence[str], place: Path) -> tuple[Batch, Refused]:
    """Return the records that a table can hold, and why it cannot hold the others."""
    batch, refusals = storable(batch, schema)
    if not any(schema[name] == "text" for name in by):
        return batch, refusals
    longest = _longest_name(place, len(by))
    too_long: Refused = {}
    for name in by:
        values, _ = parts(batch[name])
        if not isinstance(values, Text) or not batch.length:
            continue
        room = longest - len(_escape(name).encode()) - 1
        suspects = np.flatnonzero(np.diff(values.offsets) * 3 > room)  # one character becomes at most three
        for row, text in zip(suspects.tolist(), batch[name][suspects].tolist(), strict=True):
            size = len(_folder_name(text).encode())
            if size > room:
                too_long[row] = (
                    f"column {name!r} names a folder of table {place}, and {text[:20]!r}… makes one of {size:,} bytes; "
                    f"at most {room} fit"
                )
    rows = np.delete(np.arange(batch.length + len(refusals)), list(refusals))  # numbers before any was refused
    return without(batch, too_long), refusals | {int(rows[row]): why for row, why in too_long.items()}


def _longest_name(place: Path, folders: int) -> int:
    """Return how many bytes the name of one of so many folders in each other may have."""
    try:
        longest, path = os.pathconf(place, "PC_NAME_MAX"), os.pathconf(place, "PC_PATH_MAX")
    except OSError:
        longest, path = _LONGEST, _LONGEST_PATH
    return min(longest, (path - len(bytes(place.absolute())) - _LONGEST) // folders - 1)  # a file's name comes after


def _split(batch: Batch, schema: Schema, by: Sequence[str]) -> list[tuple[str, Array]]:
    """Return the folders that the records belong to, each with its rows in their order."""
    if not by:
        return [("", np.arange(batch.length))]
    codes = np.zeros(batch.length, np.int64)
    for name in by:
        column = _codes(batch, schema, name)
        _, codes = np.unique(codes * (int(column.max()) + 1) + column, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    return [(_folder(batch, int(rows[0]), schema, by), rows) for rows in np.split(order, bounds)]


def _codes(batch: Batch, schema: Schema, name: str) -> Array:
    """Return a small number for each value of a column, the same for equal ones."""
    from headwater.io.arrow import table_of

    column = table_of(batch, schema.only((name,))).column(name).combine_chunks()
    encoded = column.dictionary_encode(null_encoding="encode")
    codes: Array = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _folder(batch: Batch, row: int, schema: Schema, by: Sequence[str]) -> str:
    one = batch.slice(row, row + 1)
    texts = [(name, texts_of_column(one[name], schema[name])[0]) for name in by]
    return "/".join(f"{_escape(name)}={_folder_name(text)}" for name, text in texts)


def _folder_name(value: object) -> str:
    """Return how a folder's name shows a value, each value in a way of its own.

    >>> _folder_name("a/b"), _folder_name(None), _folder_name(""), _folder_name("__EMPTY__")
    ('a%2Fb', '__HIVE_DEFAULT_PARTITION__', '__EMPTY__', '%5F_EMPTY__')
    """
    if value is None:
        return _MISSING
    text = _escape(str(value))
    return f"%5F{text[1:]}" if text in (_MISSING, _EMPTY) else text or _EMPTY


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError):  # what brought us here may be in the way of this too
            file.unlink()


def _make(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explained(error, place, "write") from error
