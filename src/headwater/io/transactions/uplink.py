"""The way to a sink that can only be written to: a part that was cut short is written once more."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Refused, Sink, Writer, flush


class WriterUplink:
    """Delivers parts by a sink's writer: at least once."""

    def __init__(self, sink: Sink, schema: Schema) -> None:
        self._sink, self._schema = sink, schema
        self._writer: Writer | None = None

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Write the records, and wait until the other side has them."""
        if self._writer is None:
            self._writer = self._sink.open(self._schema)
        try:
            refused = [(batch, self._writer.write(batch) or {}) for batch in batches]
            flush(self._writer)
        except BaseException:
            writer, self._writer = self._writer, None  # what it has gathered is in the part, which comes again
            writer.close()
            raise
        return [(batch, why) for batch, why in refused if why]

    def close(self) -> None:
        """Close the writer."""
        if self._writer is not None:
            self._writer.close()
