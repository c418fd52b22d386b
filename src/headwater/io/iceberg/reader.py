"""Reading an Iceberg table file by file, and what is added to it later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.data.batch import Batch, stamped
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.io.iceberg.files import TableFiles
from headwater.io.iceberg.ranges import check_position
from headwater.io.iceberg.session import is_away
from headwater.io.polling import nothing_new
from headwater.io.ranges.files import check_columns

if TYPE_CHECKING:
    from headwater.io.iceberg.endpoint import Iceberg


class IcebergReader:
    """An open table; a position is a snapshot, a file of it and a row of that."""

    def __init__(self, source: Iceberg, reject: Reject, position: Any) -> None:
        self._source, self._schema = source, source.schema
        self._table = TableFiles(source)
        self._rejected = 0  # rows of the file that were none of ours since the last look

        def count_and_reject(text: str, error: str) -> None:
            self._rejected += 1
            reject(text, error)

        self._reject = count_and_reject
        check_columns(source, self._schema, self._table.columns())
        self._at: dict[str, Any] = (
            {**self._table.start(), "row": 0}
            if position is None
            else {**check_position(position, source), "ended": False}
        )
        self._batches: Iterator[Batch] | None = None  # of the file that is read
        self._batch = Batch.none(self._schema)

    @property
    def position(self) -> dict[str, Any]:
        """The snapshot, file and row that come next."""
        return {name: value for name, value in self._at.items() if name != "ended"}

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next records."""
        try:
            while not self._batch.length:
                if not self._next():
                    break
        except InputError as error:
            if not (self._source.follow and is_away(error)):
                raise
            self._batches = None  # it may come back, and is gone on with at the row
        if self._batch.length:
            batch = self._batch.slice(0, min(limit, self._batch.length))
            self._batch = self._batch.slice(len(batch), self._batch.length)
            self._at["row"] += len(batch)
            return Batch(batch.columns, len(batch), stamped(len(batch)))
        return nothing_new(self._source, timeout_s)

    def close(self) -> None:
        """Let the catalog go."""
        self._table.close()

    def _next(self) -> bool:
        """Have the next records at hand, or go on to the next file; False while there is none."""
        files = self._table.of(self._at)
        if self._batches is None:
            if self._at["file"] >= len(files):
                later = self._table.behind(self._at)
                self._at = self._at if later is None else {**later, "row": 0}
                return later is not None
            file = files[self._at["file"]]
            self._batches = self._table.read(file, self._schema, self._at["row"], self._reject)
        batch = next(self._batches, None)
        self._at["row"] += self._rejected  # which lie before what comes now
        self._rejected = 0
        if batch is None:
            self._batches = None
            self._at |= {"file": self._at["file"] + 1, "row": 0}
        else:
            self._batch = batch
        return True
