"""Sources that cannot be read twice, or only here: they are received into a log, and Spark reads the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.data.batch import Batch
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, Ranges, Sizes
from headwater.io.log import Consumer, Entry
from headwater.io.receiving.rounds import batches_of, entries, last_of
from headwater.operators.operator import DEAD


class LoggedRanges(Ranges):
    """The log of a source. With `broadcast`, records travel in the tasks, for executors that do not see the folder."""

    def __init__(self, folder: Path, sizes: Sizes, *, broadcast: bool) -> None:
        self._folder, self.sizes, self._ship = folder, sizes, broadcast

    def start(self) -> Offset:
        """Return the first entry."""
        return {"position": 0, "ended": False}

    def advance(self, at: Offset) -> Offset:
        """Return how far the log is safe on disk, at most a micro-batch further."""
        new = entries(self._folder, at["position"], most_bytes=self.sizes.batch_bytes)
        if not new:
            return at
        return {"position": new[-1].position + 1, "ended": last_of(new[-1].data).ended}

    def finish(self, at: Offset, until_ns: int | None) -> Offset:
        """Go on: what is in the log was read already, and is processed however the run ends."""
        return self.advance(at)

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return the ranges of entries between two places."""
        entries_in = entries(self._folder, start["position"], end["position"])
        size = sum(entry.nbytes for entry in entries_in)
        share = -(-size // self.sizes.pieces(size, self.sizes.piece_bytes))
        pieces: list[list[Entry]] = []
        room = 0
        for entry in entries_in:
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
                    yield Batch.of_watermark(batch.watermark)
                else:
                    yield batch

    def forget(self, end: Offset) -> None:
        """Remove what was read and will not be asked for again."""
        consumer = Consumer(self._folder, "spark")
        try:
            consumer.release(end["position"])
        finally:
            consumer.close()
