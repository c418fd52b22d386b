"""Parquet files, cut by rows: where a row group ends, if one ends near enough."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

from headwater.data.batch import Batch
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, Ranges, Sizes
from headwater.io.parquet import Parquet, ParquetReader

_RECORDS = 2**14  # in a batch


class RowRanges(Ranges):
    """A Parquet file, of which some columns are read; offsets count rows."""

    has_end = True
    quick_to_cut = False  # in small ranges: who begins within a row group reads it from its beginning

    def __init__(self, source: Parquet, sizes: Sizes, columns: tuple[str, ...] | None = None) -> None:
        self.sizes = sizes
        self.source = Parquet(Path(source.path).absolute())
        for name in columns or ():
            self.source.schema.type_of(name, what=f"file {source.path}")
        self._schema = self.source.schema if columns is None else self.source.schema.only(columns)
        self.columns = tuple(self._schema) if len(self._schema) < len(self.source.schema) else None
        self._groups = [0]  # the rows before each group, and all rows

    def start(self) -> Offset:
        """Return the first row."""
        self._groups = list(accumulate(self.source.row_groups(), initial=0))
        return {"row": 0, "ended": False}

    def advance(self, at: Offset) -> Offset:
        """Return the row up to which the next micro-batch reads."""
        row = min(self._groups[-1], at["row"] + self.sizes.batch_records)
        return {"row": row, "ended": row == self._groups[-1]}

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return ranges of rows of about equal size."""
        first, stop = start["row"], end["row"]
        count = self.sizes.pieces(stop - first, self.sizes.piece_records)
        slack = (stop - first) // (4 * count)
        targets = [first + (stop - first) * number // count for number in range(1, count)]
        places = [first, *(self._near(row, slack) for row in targets), stop]
        return [(row, after) for row, after in pairwise(places) if after > row]

    def offset(self, position: int | None) -> Offset:
        """Return the next row."""
        return {"row": position or 0, "ended": False}

    def share(self, at: Offset) -> float:
        """Return it by rows."""
        return float(at["row"] / max(1, self._groups[-1]))

    def position(self, at: Offset) -> int:
        """Return how many rows were read."""
        return int(at["row"])

    def _near(self, row: int, slack: int) -> int:
        """Return the beginning of a row group close by, since who begins within one reads it from its beginning."""
        nearest = min(self._groups, key=lambda begin: abs(begin - row))
        return nearest if abs(nearest - row) <= slack else row

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read some rows."""
        row, stop = piece
        reader = ParquetReader(self.source.path, self._schema, row, reject)
        try:
            while (remaining := stop - reader.position) > 0 and (
                batch := reader.read(min(_RECORDS, remaining), 0)
            ) is not None:
                yield batch
        finally:
            reader.close()
