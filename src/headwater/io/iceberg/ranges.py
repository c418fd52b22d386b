"""An Iceberg table by its files, which tasks read side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyiceberg.table import FileScanTask

from headwater.data.batch import Batch
from headwater.errors import InputError
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, RangeRequest
from headwater.io.iceberg.files import TableFiles
from headwater.io.ranges.files import FileRanges, check_columns

if TYPE_CHECKING:
    from headwater.io.iceberg.endpoint import Iceberg

_POSITION = ("snapshot", "read", "last", "file")  #: what a position has, beside the row


class IcebergRanges(FileRanges):
    """The files of a table at the snapshot at which reading began, and of each later one what it added."""

    def __init__(self, source: Iceberg, request: RangeRequest) -> None:
        super().__init__(source.schema, request, follow=source.follow)
        self._source, self.has_end = source, not source.follow
        self._table = TableFiles(source)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_table": None}  # an open catalog stays where it is

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._table = TableFiles(self._source)

    def start(self) -> Offset:
        """Return the first file of the table as it is now."""
        try:
            check_columns(self._source, self._schema, self._table.columns())
            return self._table.start()
        finally:
            self._table.close()  # other processes may be made of this one, and open it themselves

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return files, in pieces of about equal size; another process may have said up to where."""
        self._table.see(end["snapshot"])
        return super().cut(start, end)

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read some files."""
        for snapshot, mode, number, row in piece:
            file = self._table.of({"snapshot": snapshot, "read": mode})[number]
            yield from self._table.read(file, self._schema, row, reject)

    def offset(self, position: Any) -> Offset:
        """Return a reader's position as an offset: it is one, with a row."""
        return {**check_position(position, self._source), "ended": False}

    def position(self, at: Offset) -> Any:
        """Return an offset as a reader tells it."""
        return {name: at[name] for name in _POSITION} | {"row": at.get("row", 0)}

    def _files(self, at: Offset) -> list[FileScanTask]:
        return self._table.of(at)

    def _behind(self, at: Offset) -> Offset | None:
        return self._table.behind(at)

    def _size(self, file: FileScanTask) -> int:
        return file.file.file_size_in_bytes

    def _part(self, at: Offset, file: FileScanTask) -> tuple[Any, ...]:
        return at["snapshot"], at["read"], at["file"], at.get("row", 0)


def check_position(position: Any, source: Iceberg) -> dict[str, Any]:
    """Return a position; raises InputError for what is none."""
    if not isinstance(position, dict) or not {*_POSITION, "row"} <= position.keys():
        raise InputError(
            f"cannot read {source} from position {position!r}: expected a snapshot with a file and a row of it"
        )
    return position
