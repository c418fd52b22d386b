"""Sinks that write everything at the end. Until then records are kept on disk, not in memory."""

from __future__ import annotations

import os

from headwater.data.batch import Batch
from headwater.data.frames import pack
from headwater.data.schema import Schema
from headwater.flow.endpoints import Ledger, Sink, write_whole
from headwater.io.files import explained, write_all
from headwater.io.transactions.cut_file import CutFile
from headwater.io.transactions.frames import batches_in


class Spool(CutFile):
    """Keeps all records beside the checkpoint, and hands them to a new writer of the sink when it is closed."""

    shared = False

    def __init__(self, sink: Sink, schema: Schema, ledger: Ledger) -> None:
        super().__init__(ledger.folder / "spool", ledger)
        self._sink, self._schema = sink, schema
        try:
            fresh = os.O_TRUNC if self._is_new else 0
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, 0o666)
        except OSError as error:
            raise explained(error, self._path, "write") from error
        if self._is_new:
            self._note_begin()

    def write(self, batch: Batch) -> None:
        """Keep records."""
        write_all(self._fd, pack(batch), self._path)

    def close(self) -> None:
        """Write everything to the sink."""
        os.close(self._fd)
        writer = self._sink.open(self._schema)
        try:
            for batch in batches_in(self._path, self.end):
                write_whole(writer, batch)
        finally:
            writer.close()
