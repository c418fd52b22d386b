"""Tables of Parquet files: exactly once. Tasks write files out of sight, the driver lets those of a micro-batch appear.

What the table's folder `_headwater` says of the last micro-batch is its commit: files named there get their places, now
or when the next run begins; files that are not named there never do. Other programs see whole files only, and never one
that a later attempt will write again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

import msgspec

from headwater.data.batch import Batch, concat_batches
from headwater.data.schema import Schema
from headwater.flow.endpoints import Refused
from headwater.io.files import explained
from headwater.io.parquet import Parquet
from headwater.io.table import ParquetTable, writable, write_parts
from headwater.spark.sinks.journal import Journal

_OURS = "_headwater"  # Spark and Arrow pass over names that begin so


@dataclass(frozen=True, slots=True)
class Staging:
    """Writes records out of sight; small enough to be sent to tasks."""

    place: str  #: the table's folder, as every machine sees it
    run: str  #: the name of all runs that share a checkpoint
    schema: Schema
    by: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where files wait."""
        return Path(self.place) / _OURS / self.run

    def parted(self, batch: Batch) -> tuple[Batch, Refused]:
        """Return the records that the table can hold, and why it cannot hold the others."""
        return writable(batch, self.schema, self.by, Path(self.place))

    def write(self, batches: Sequence[Batch]) -> bytes:
        """Write records to files; return what the driver needs to know of them."""
        name = uuid4().hex
        parts = write_parts(concat_batches(batches), self.schema, self.by, self.folder / name, "part.parquet")
        return msgspec.msgpack.encode([[folder, str(Path(name, folder, "part.parquet"))] for folder, _ in parts])


class TableSink:
    """A table, as the driver sees it."""

    def __init__(self, sink: ParquetTable | Parquet, schema: Schema, run: str) -> None:
        place = Path(sink.path).absolute()
        by = sink.by if isinstance(sink, ParquetTable) else ()
        if isinstance(sink, ParquetTable):
            sink.check(schema)
        self.staging = Staging(str(place), run, schema, by)
        self._place, self._run = place, run
        if isinstance(sink, Parquet) and place.is_file():
            place.unlink()  # what was a file becomes a folder
        self._journal = Journal(place / _OURS / f"{run}.json")
        if self._journal.entry is None:
            if isinstance(sink, Parquet):
                self._clear()
            self._journal.write(-1, files=[])
        self._publish()
        self._sweep()

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written."""
        self._staged: list[bytes] = []
        self._waiting: list[Batch] = []
        if batch_id > self._journal.batch:
            return True
        self._sweep()
        return False

    def stage(self, said: bytes) -> None:
        """Take what a task said of the files it wrote."""
        self._staged.append(said)

    def write(self, batch: Batch) -> Refused:
        """Take records that no task has written."""
        kept, refused = self.staging.parted(batch)
        if len(kept):
            self._waiting.append(kept)
        return refused

    def commit(self, batch_id: int) -> None:
        """Let all files of the micro-batch appear."""
        if self._waiting:
            self._staged.append(self.staging.write(self._waiting))
        files = [file for said in self._staged for file in msgspec.msgpack.decode(said)]
        named = [
            [staged, str(Path(folder) / f"part-{self._run}-{batch_id:06d}-{number:04d}.parquet")]
            for number, (folder, staged) in enumerate(files)
        ]
        self._journal.write(batch_id, files=named)
        self._publish()
        self._sweep()

    def close(self) -> None:
        """Remove the folder in which files waited."""
        self._sweep()

    def _publish(self) -> None:
        """Give the files of the last micro-batch their places; done before, it does nothing."""
        assert self._journal.entry is not None
        for staged, name in self._journal.entry["files"]:
            source, target = self.staging.folder / staged, self._place / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.exists() or not target.exists():
                    os.replace(source, target)
            except OSError as error:
                raise explained(error, target, "write") from error

    def _sweep(self) -> None:
        """Remove what attempts have left that came to nothing."""
        rmtree(self.staging.folder, ignore_errors=True)

    def _clear(self) -> None:
        """Begin with an empty table, as a Parquet file begins empty."""
        for old in self._place.glob("part-*.parquet"):
            old.unlink()
