"""Text files: exactly once. What a kill left behind the last whole micro-batch is cut off before going on."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.csv import Csv
from headwater.io.files import explained
from headwater.io.jsonl import JsonLines
from headwater.spark.sinks.journal import Journal


class LineFile:
    """A file of lines whose journal says how long it was after each micro-batch."""

    def __init__(self, sink: JsonLines | Csv, schema: Schema, folder: Path) -> None:
        self._path = Path(sink.path).absolute()
        self._journal = Journal(folder / "written")
        if self._journal.entry is None:
            self._writer = sink.open(schema)
            self._journal.write(-1, bytes=self._size())
        else:
            self._cut(self._journal.entry["bytes"])
            self._writer = _appending(sink).open(schema)

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written."""
        if batch_id <= self._journal.batch:
            return False
        assert self._journal.entry is not None
        self._cut(self._journal.entry["bytes"])  # an attempt may have failed half-way
        return True

    def write(self, batch: Batch) -> Refused | None:
        """Write some of its records."""
        return self._writer.write(batch)

    def commit(self, batch_id: int) -> None:
        """Take note that all of it is written."""
        self._journal.write(batch_id, bytes=self._size())

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _size(self) -> int:
        return self._path.stat().st_size

    def _cut(self, size: int) -> None:
        try:
            has = self._size()
            if has < size:
                raise InputError(
                    f"cannot go on writing {self._path}: it has {has:,} bytes, and the checkpoint knows of {size:,}; "
                    "was it replaced? Put it back, or begin anew with another checkpoint"
                )
            if has > size:
                os.truncate(self._path, size)
        except OSError as error:
            raise explained(error, self._path, "write") from error


def _appending(sink: JsonLines | Csv) -> JsonLines | Csv:
    if isinstance(sink, Csv):
        return Csv(sink.path, header=sink.header, delimiter=sink.delimiter, append=True)
    return JsonLines(sink.path, append=True)
