"""Parquet: columns in a compressed file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import suppress
from errno import EISDIR
from pathlib import Path
from typing import IO, Any, overload

from headwater.data.batch import Batch, concat_batches, stamped
from headwater.data.schema import Schema
from headwater.errors import InputError, NoRoomError, PathError
from headwater.flow.endpoints import (
    DeliverySemantics,
    Ledger,
    Refused,
    Reject,
    Resume,
    Transaction,
    Writer,
    write_whole,
)
from headwater.flow.identity import Identity, path_of
from headwater.flow.places import Place
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.files import check_no_file, check_writable, explained, hold, write_all
from headwater.io.sifting import storable
from headwater.io.text_file import content_of

_ROWS = 2**16  # in a row group that is written, and in a piece that is read
_IN_PARTS = "a run with a checkpoint, or on Spark, writes a folder of that name"


class Parquet:
    """A Parquet file to read or to write.

    When written, records are gathered into row groups, under a temporary name that becomes the file's own
    when it is closed: a file of that name is always whole. Time columns are timestamps in UTC; columns of
    any Python objects become JSON text and are marked, so that they come back as objects. Written in parts, as Spark
    does and with checkpoints, it is a folder of that name with files that appear with their part.
    """

    resume: Resume = "position"
    delivery: DeliverySemantics = "transactional"
    staged = True

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._schema: Schema | None = None

    @property
    def schema(self) -> Schema:
        """The columns that the file has."""
        if self._schema is None:
            from headwater.io import arrow

            with _open_file(self.path) as file:
                try:
                    self._schema = arrow.schema_of(file.schema_arrow)
                except InputError as error:
                    raise InputError(f"cannot read {self.path}: {error}") from None
        return self._schema

    def row_groups(self) -> list[int]:
        """Return how many rows each row group of the file has."""
        with _open_file(self.path) as file:
            return [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None) -> ParquetReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> ParquetWriter: ...
    def open(self, reject_or_schema: Reject | Schema, position: Any = None) -> ParquetReader | ParquetWriter:
        """Start reading, after as many rows as `position` says; with a schema instead, start writing."""
        if isinstance(reject_or_schema, Schema):
            return ParquetWriter(self.path, reject_or_schema)
        return ParquetReader(self.path, self.schema, position, reject_or_schema)

    def appended(self, schema: Schema) -> Writer:
        """Start writing behind what is there: a file is written anew, its records first; a folder gets one more file."""
        if Path(self.path).is_dir():
            from headwater.io.table import ParquetTable

            return ParquetTable(self.path).open(schema)
        if not Path(self.path).exists():
            return ParquetWriter(self.path, schema)
        existing = Parquet(self.path)
        if existing.schema != schema:
            raise InputError(
                f"cannot write behind what {self.path} holds: its columns are ({existing.schema}), not ({schema})"
            )
        writer = ParquetWriter(self.path, schema)
        reader = ParquetReader(self.path, schema, None, _ours)
        try:
            while (batch := reader.read(_ROWS, 0.0)) is not None:
                write_whole(writer, batch)
        finally:
            reader.close()
        return writer

    def check_read(self) -> None:
        """Raise what is wrong with the file."""
        _open_file(self.path).close()

    def check_place(self, in_parts: bool) -> None:
        """Raise what is wrong with where it writes: a file or, in parts, a folder."""
        if in_parts:
            check_no_file(self.path, _IN_PARTS)
        else:
            _refuse_folder(self.path)
            check_writable(self.path)

    def ranges(self, request: RangeRequest) -> Ranges:
        """Return the file in ranges of rows."""
        from headwater.io.ranges.rows import RowRanges

        return RowRanges(self, request.sizes, request.columns)

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Start writing a folder in parts: the files of one appear together."""
        from headwater.io.transactions.table import TableParts

        check_no_file(self.path, _IN_PARTS)
        return TableParts(self.path, schema, (), ledger, anew=True)

    @property
    def identity(self) -> Identity:
        """Where it is and what: it is written once, with a summary at its end."""
        return {"path": path_of(self.path), **content_of(Path(self.path), last=2**16)}

    def claims(self, *, writing: bool) -> Place:
        """Return the file that it reads or writes."""
        return Place.of_file(self.path)

    def __str__(self) -> str:
        return str(self.path)


class ParquetReader:
    """An open Parquet file; a row of which a value fits no column of ours goes to `reject`."""

    def __init__(self, path: str | Path, schema: Schema, position: Any, reject: Reject) -> None:
        self._path, self._schema, self._reject = path, schema, reject
        self._file = _open_file(path)
        self._row = _check_position(position, path)
        self._pieces = self._from(self._row)
        self._piece = Batch.none(schema)
        self._at = 0  # the row of the piece that is next
        self._unfit: tuple[str, str] | None = None  # the row behind the piece, and why it is no record

    @property
    def position(self) -> int:
        """Rows read so far."""
        return self._row

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next records."""
        while self._at == len(self._piece):
            if self._unfit is not None:
                self._reject(*self._unfit)
                self._unfit = None
                self._row += 1
                return Batch.none(self._schema)  # who reads up to a row looks again how far this is
            piece = next(self._pieces, None)
            if piece is None:
                return None
            (self._piece, self._unfit), self._at = piece, 0
        batch = self._piece.slice(self._at, min(self._at + limit, len(self._piece)))
        self._at += len(batch)
        self._row += len(batch)
        return Batch(batch.columns, len(batch), stamped(len(batch)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _from(self, row: int) -> Iterator[tuple[Batch, tuple[str, str] | None]]:
        """Read piece by piece from a row on, passing over whole row groups before it."""
        from headwater.io.arrow import runs_of

        group = 0
        while group < self._file.num_row_groups and row >= self._file.metadata.row_group(group).num_rows:
            row -= self._file.metadata.row_group(group).num_rows
            group += 1
        groups = list(range(group, self._file.num_row_groups))
        try:
            for piece in self._file.iter_batches(_ROWS, row_groups=groups, columns=list(self._schema)):
                skipped, row = min(row, piece.num_rows), max(0, row - piece.num_rows)
                yield from runs_of(piece.slice(skipped), self._schema)
        except (OSError, InputError) as error:  # Arrow's own errors of corrupt files are OSErrors
            raise InputError(f"cannot read {self._path}: {error}") from error


def _ours(text: str, error: str) -> None:
    """Raise what cannot be: a file that we wrote holds nothing else than our types."""
    raise InputError(f"{error}: {text}")


class _Encoded(io.RawIOBase):
    """What Arrow has encoded and is not on disk yet: it goes there whole, or waits until there is room."""

    def __init__(self, out: IO[bytes], path: Path) -> None:
        super().__init__()
        self._out, self._path = out, path
        self._waiting = bytearray()
        self._on_disk = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        return len(data)

    def tell(self) -> int:
        return self._on_disk + len(self._waiting)

    def settle(self) -> None:
        """Write what waits; raises InputError, and then it waits on."""
        if self._waiting:
            write_all(self._out.fileno(), bytes(self._waiting), self._path)
            self._on_disk += len(self._waiting)
            self._waiting = bytearray()


class ParquetWriter:
    """An open Parquet file that gathers records into row groups."""

    def __init__(self, path: str | Path, schema: Schema) -> None:
        from headwater.io.arrow import arrow_schema, parquet

        pq = parquet()

        self._path, self._schema = Path(path), schema
        self._temporary = self._path.with_name(f".{self._path.name}.part")
        self._batches: list[Batch] = []
        self._count = 0  # records, whether in the file already or gathered
        self._failure: InputError | None = None  # a file that broke off cannot be gone on with
        _refuse_folder(path)
        try:
            self._out = _open_temporary(self._temporary, path)
        except OSError as error:
            raise explained(error, path, "write") from error
        self._encoded = _Encoded(self._out, self._path)
        self._file = pq.ParquetWriter(self._encoded, arrow_schema(schema))

    def write(self, batch: Batch) -> Refused:
        """Take the records; they are on disk when their row group is full, or when the file is closed."""
        if self._failure is not None:
            raise self._failure
        self._settle()  # what a full disk had no room for comes first
        if sum(map(len, self._batches)) >= _ROWS:
            self._write_group()
            self._settle()
        records, refusals = storable(batch, self._schema)
        self._batches.append(records)
        self._count += len(records)
        return refusals

    def close(self) -> None:
        """Write what is gathered, finish the file and give it its name; raises InputError if there will be none.

        Where that is for want of room, NoRoomError, it may be closed again, or has to be abandoned.
        """
        if self._out.closed and self._failure is None:
            return
        try:
            if self._failure is not None:
                raise self._failure
            self._settle()
            self._write_group()
            self._file.close()
            self._settle()
            self._temporary.replace(self._path)  # while it is still ours
            self._out.close()
        except NoRoomError as error:
            raise NoRoomError(f"{error}; {self._count:,} records wait for it", records=self._count) from error
        except (OSError, InputError) as error:
            why = self._abandon(error)
            self._failure = None
            raise InputError(f"{why}; {self._count:,} records are lost with it", records=self._count) from error

    def abandon(self) -> None:
        """Leave no half a file behind."""
        self._abandon(InputError(f"cannot write {self._path}: it was given up"))

    def _write_group(self) -> None:
        from headwater.io.arrow import table_of

        if any(map(len, self._batches)):
            self._file.write_table(table_of(concat_batches(self._batches), self._schema), row_group_size=_ROWS)
        self._batches = []

    def _settle(self) -> None:
        """Have what is encoded on disk; raises NoRoomError where that may be done later, or what ends the file."""
        try:
            self._encoded.settle()
        except NoRoomError:
            raise
        except InputError as error:
            raise self._abandon(error) from error

    def _abandon(self, error: OSError | InputError) -> InputError:
        """Leave no half a file behind, and return what is said from now on."""
        if self._failure is None:
            with suppress(OSError):
                self._out.close()
            self._temporary.unlink(missing_ok=True)
            self._failure = explained(error, self._path, "write") if isinstance(error, OSError) else error
        return self._failure


def _open_temporary(temporary: Path, path: str | Path) -> IO[bytes]:
    """Open the file that will become `path`, empty and ours alone; what a killed run has left of it is overwritten."""
    while True:
        out = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o666), "wb")
        try:
            hold(out.fileno(), path)
        except InputError:
            out.close()
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(out.fileno()), os.stat(temporary)):
                out.truncate(0)
                return out
        out.close()  # another run had just finished with it, and given it its name


def _refuse_folder(path: str | Path) -> None:
    if Path(path).is_dir():
        raise PathError(
            f"cannot write {path}: it is a directory, as a run with a checkpoint makes one; go on with that checkpoint, "
            "remove it, or name a file in it"
        )


def _open_file(path: str | Path) -> Any:
    from headwater.io import arrow

    try:
        if os.path.isdir(path):
            raise IsADirectoryError(EISDIR, "")
        return arrow.parquet().ParquetFile(path)
    except arrow.ArrowInvalid as error:
        raise InputError(f"cannot read {path}: it is no Parquet file, or a damaged one ({error})") from None
    except OSError as error:
        raise explained(error, path, "read") from error


def _check_position(position: Any, path: str | Path) -> int:
    if position is not None and not (isinstance(position, int) and position >= 0):
        raise InputError(f"cannot read {path} from position {position!r}: expected a number of rows")
    return position or 0
