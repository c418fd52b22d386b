"""Sinks that write everything at the end: exactly once. Until then records are kept on disk, not in memory."""

from __future__ import annotations

from pathlib import Path

from headwater.data.batch import Batch, concat_batches
from headwater.data.schema import Schema
from headwater.flow.endpoints import Sink, write_whole
from headwater.spark.sources import log as logs
from headwater.spark.sources.log import LogWriter, Place

_PIECE = 8 * 2**20


class SpooledSink:
    """Keeps all records in a log beside the checkpoint, and hands them to the sink when it is closed."""

    def __init__(self, sink: Sink, schema: Schema, folder: Path) -> None:
        self._sink, self._schema, self._folder = sink, schema, folder / "spool"
        self._log = LogWriter(self._folder)
        self._written = -1 if self._log.end.position is None else int(self._log.end.position)

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written."""
        self._waiting: list[Batch] = []
        return batch_id > self._written

    def write(self, batch: Batch) -> None:
        """Take some of its records."""
        self._waiting.append(batch)

    def commit(self, batch_id: int) -> None:
        """Have all of it on disk as one entry, so that it is there as a whole or not at all."""
        if self._waiting:
            self._log.append(0, concat_batches(self._waiting), batch_id)
            self._log.sync()
        self._written = batch_id

    def close(self) -> None:
        """Write everything to the sink."""
        self._log.close()
        writer = self._sink.open(self._schema)
        try:
            for span in logs.spans(self._folder, Place(0, 0), logs.end_of(self._folder).place, _PIECE):
                for _, batch in logs.entries(logs.read_span(self._folder, span)):
                    write_whole(writer, batch)
        finally:
            writer.close()
