"""Sources that cannot be read twice, or only here: a thread reads them into a log, and Spark reads the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

from headwater.data.batch import Batch
from headwater.errors import HeadwaterError, RunError
from headwater.flow.endpoints import Reader, Reject, Source, commit, dropped_by, opened, position_of
from headwater.flow.ranges import Offset, Piece, Ranges, Sizes
from headwater.operators.operator import DEAD, rejected
from headwater.spark.sources import log as logs
from headwater.spark.sources.log import LogWriter, Place

log = logging.getLogger(__name__)

_RECORDS = 4096  # read at once
_PATIENCE_S = 0.05
_MOST_BYTES = 2**30  # on disk; beyond, reading waits until Spark has caught up


class LoggedRanges(Ranges):
    """The log of a source. With `broadcast`, records travel in the tasks, for executors that do not see the folder."""

    def __init__(self, folder: Path, sizes: Sizes, *, broadcast: bool) -> None:
        self._folder, self._sizes, self._ship = folder, sizes, broadcast

    def start(self) -> Offset:
        """Return the first entry."""
        return {"segment": 0, "byte": 0, "ended": False}

    def advance(self, at: Offset) -> Offset:
        """Return how far the log is safe on disk, at most a micro-batch further."""
        (segment, byte), _, ended = logs.end_of(self._folder)
        start, end = _place(at), Place(segment, byte)
        if end == start:
            return {**at, "ended": ended}
        found = logs.spans(self._folder, start, end, self._sizes.batch_bytes)
        if not found:  # a new file was begun, with nothing in it yet
            return {"segment": segment, "byte": byte, "ended": True} if ended else at
        number, _, stop = found[0]
        return {"segment": number, "byte": stop, "ended": ended and (number, stop) == end}

    def finish(self, at: Offset, until_ns: int | None) -> Offset:
        """Go on: what is in the log was read already, and is processed however the run ends."""
        return self.advance(at)

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return the ranges of entries between two places."""
        first, last = _place(start), _place(end)
        found = logs.spans(self._folder, first, last, self._sizes.piece_bytes)
        size = sum(stop - begin for _, begin, stop in found)
        count = self._sizes.pieces(size, self._sizes.piece_bytes)
        found = logs.spans(self._folder, first, last, -(-size // count)) if size else []
        return [(logs.read_span(self._folder, span),) if self._ship else span for span in found]

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read some entries; dead letters are rejected once more, as they were."""
        data = piece[0] if self._ship else logs.read_span(self._folder, piece)
        for port, batch in logs.entries(data):
            if port == DEAD:
                for letter in batch.rows():
                    reject(letter["record"], letter["error"])
                yield Batch.mark(batch.watermark)
            else:
                yield batch

    def forget(self, end: Offset) -> None:
        """Remove what was read and will not be asked for again."""
        logs.trim(self._folder, _place(end))


class Receiver:
    """The thread that reads a source into its log; what the source sent is acknowledged when it is safe there."""

    def __init__(self, step: str, source: Source, folder: Path, *, until_idle: bool) -> None:
        self._step, self._until_idle = step, until_idle
        self._letters: list[Batch] = []
        self._stopping = Event()
        self.error: HeadwaterError | None = None  #: why it ended early, if it did
        self.dropped = 0  #: messages that the reader had no room for
        self._log = LogWriter(folder)
        self._reader: Reader | None = None
        if not self._log.end.ended:
            self._reader = opened(source, self._reject, self._log.end.position)
            commit(
                self._reader, position_of(self._reader)
            )  # from now on nothing is acknowledged but what is in the log
        self._thread = Thread(target=self._run, name=f"read {step}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading; what was read is safe."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        reader = self._reader
        try:
            if reader is not None:
                self._read_all(reader)
        except HeadwaterError as error:
            self.error = RunError(f"source {self._step!r} stopped: {error}", step=self._step)
        except Exception as error:
            log.exception("source %s broke", self._step)
            self.error = RunError(f"source {self._step!r} broke: {type(error).__name__}: {error}", step=self._step)
        finally:
            if reader is not None:
                reader.close()
                self.dropped = dropped_by(reader)  # since it was last read
            self._log.close()

    def _read_all(self, reader: Reader) -> None:
        while not self._stopping.is_set():
            if self._log.nbytes > _MOST_BYTES:
                self._stopping.wait(_PATIENCE_S)
                continue
            batch = reader.read(_RECORDS, _PATIENCE_S)
            self.dropped = dropped_by(reader)
            position = position_of(reader)
            found = [(DEAD, letter) for letter in self._letters]
            self._letters.clear()
            if batch is not None and batch.length:
                found.append((0, batch))
            for port, each in found:
                self._log.append(port, each, position)
            ended = batch is None or (self._until_idle and not found)
            if found or ended:
                self._log.sync(ended=ended)
                commit(reader, position)
            if ended:
                return

    def _reject(self, text: str, error: str) -> None:
        self._letters.append(rejected(self._step, text, error))


def _place(offset: Offset) -> Place:
    return Place(offset["segment"], offset["byte"])
