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
from headwater.io.log import Consumer, Entry, Log
from headwater.operators.operator import DEAD, rejected
from headwater.spark.sources.rounds import batches_of, entries, last_in, last_of, packed

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
        return {"position": 0, "ended": False}

    def advance(self, at: Offset) -> Offset:
        """Return how far the log is safe on disk, at most a micro-batch further."""
        found = entries(self._folder, at["position"], most_bytes=self._sizes.batch_bytes)
        if not found:
            return at
        return {"position": found[-1].position + 1, "ended": last_of(found[-1].data).ended}

    def finish(self, at: Offset, until_ns: int | None) -> Offset:
        """Go on: what is in the log was read already, and is processed however the run ends."""
        return self.advance(at)

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return the ranges of entries between two places."""
        found = entries(self._folder, start["position"], end["position"])
        size = sum(entry.nbytes for entry in found)
        share = -(-size // self._sizes.pieces(size, self._sizes.piece_bytes))
        pieces: list[list[Entry]] = []
        room = 0
        for entry in found:
            if room <= 0:
                pieces.append([])
                room = share
            pieces[-1].append(entry)
            room -= entry.nbytes
        if self._ship:
            return [tuple(entry.data for entry in piece) for piece in pieces]
        return [(piece[0].position, piece[-1].position + 1) for piece in pieces]

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Read some entries; dead letters are rejected once more, as they were."""
        for data in piece if self._ship else [entry.data for entry in entries(self._folder, *piece)]:
            for port, batch in batches_of(data):
                if port == DEAD:
                    for letter in batch.rows():
                        reject(letter["record"], letter["error"])
                    yield Batch.mark(batch.watermark)
                else:
                    yield batch

    def forget(self, end: Offset) -> None:
        """Remove what was read and will not be asked for again."""
        consumer = Consumer(self._folder, "spark")
        try:
            consumer.release(end["position"])
        finally:
            consumer.close()


class Receiver:
    """The thread that reads a source into its log; what the source sent is acknowledged when it is safe there."""

    def __init__(self, step: str, source: Source, folder: Path, *, until_idle: bool) -> None:
        self._step, self._until_idle = step, until_idle
        self._letters: list[Batch] = []
        self._stopping = Event()
        self.error: HeadwaterError | None = None  #: why it ended early, if it did
        self.dropped = 0  #: messages that the reader had no room for
        self._log = Log(folder)
        self._reader: Reader | None = None
        try:
            last = last_in(folder, self._log.end)
            if not last.ended:
                self._reader = opened(source, self._reject, last.position)
                # from now on nothing is acknowledged but what is in the log
                commit(self._reader, position_of(self._reader))
        except BaseException:
            self._log.close()
            raise
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
            self._stopped(error)
        except Exception as error:
            log.exception("source %s broke", self._step)
            self.error = RunError(f"source {self._step!r} broke: {type(error).__name__}: {error}", step=self._step)
        finally:
            if reader is not None:
                reader.close()
                self.dropped = dropped_by(reader)  # since it was last read
            try:
                self._log.close()
            except HeadwaterError as error:
                self._stopped(error)

    def _stopped(self, error: HeadwaterError) -> None:
        self.error = self.error or RunError(f"source {self._step!r} stopped: {error}", step=self._step)

    def _read_all(self, reader: Reader) -> None:
        while not self._stopping.is_set():
            self._log.look_again()
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
            ended = batch is None or (self._until_idle and not found)
            if found or ended:
                records = sum(each.length for _, each in found)
                self._log.append(packed(found, position, ended=ended), records=records)
                self._log.sync()
                commit(reader, position)
            if ended:
                return

    def _reject(self, text: str, error: str) -> None:
        self._letters.append(rejected(self._step, text, error))
