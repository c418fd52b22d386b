"""The rows of a piece of history, in order of time, on their way into a flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.schema import Schema

if TYPE_CHECKING:
    from headwater.spark.sources.data_source import Prefix

AT = "_headwater_at"  #: the column that has the time of a row in microseconds
_TAKEN = 2**16  #: records that steps are given at once


def in_order(number: int, rows: Any, schema: Schema, prefix: Prefix) -> Iterator[Any]:
    """Return the stage's rows for the `number`-th piece, an Arrow table with the column AT besides those of the schema."""
    from headwater.io.arrow import batch_of
    from headwater.spark.sources.data_source import in_arrow

    ordered = _sorted(rows)
    del rows

    def put_out() -> Iterator[tuple[int, Batch]]:
        for part in ordered.combine_chunks().to_batches(max_chunksize=_TAKEN):
            yield 0, batch_of(part, schema)

    return in_arrow(prefix(number, put_out()))


def _sorted(rows: Any) -> Any:
    """Sort rows by time; those of one moment by all their columns, so that the order is always the same."""
    import pyarrow as pa

    at = rows.column(AT)
    if not at.null_count:
        times = at.to_numpy()
        steps = times[1:] > times[:-1]
        if steps.all():
            return rows
        order = np.argsort(times)  # not stable, and several times as fast as Arrow's: it decides where no two are equal
        times = times[order]
        if (times[1:] != times[:-1]).all():
            return rows.take(pa.array(order))
    others = [field.name for field in rows.schema if field.name != AT and not pa.types.is_nested(field.type)]
    return _by(rows, [AT, *others])


def _by(rows: Any, columns: list[str]) -> Any:
    import pyarrow.compute as pc

    keys = [(name, "ascending") for name in columns]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))
