"""A queue of batches on disk, for when memory is full."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from pathlib import Path
from typing import IO

import numpy as np

from headwater.data.batch import Batch
from headwater.data.frames import PREFIX, pack, unpack
from headwater.errors import InputError
from headwater.io.files import explained, write_all

_SEGMENT_BYTES = 16 * 2**20


class SpillFile:
    """Keeps batches on disk, first in first out; they come back with the same columns, stamps and watermark.

    The files have no names, so that nothing is left behind however the process ends. `max_bytes` bounds what
    they take on disk; a batch beyond it, or beyond the disk, is refused with InputError and the queue stays
    as it was. Not safe for several threads at once: the queue that owns it has a lock already.
    """

    def __init__(self, directory: str | Path, max_bytes: int | None = None) -> None:
        self._directory, self._max_bytes = Path(directory), max_bytes
        # a few segments within the bound, so that what is consumed makes room
        self._segment_bytes = _SEGMENT_BYTES if max_bytes is None else min(_SEGMENT_BYTES, max_bytes // 4)
        self._segments: deque[_Segment] = deque()
        self._batches = 0
        self.nbytes = 0  #: bytes on disk

    def __len__(self) -> int:
        """Return how many batches wait."""
        return self._batches

    def append(self, batch: Batch) -> None:
        """Store a batch behind all others."""
        frame = pack(batch)
        if self._max_bytes is not None and self.nbytes + len(frame) > self._max_bytes:
            raise InputError(
                f"cannot spill to {self._directory}: {len(frame):,} more bytes would pass the limit of "
                f"{self._max_bytes:,}, and {self.nbytes:,} are there; raise it, or shed or block instead"
            )
        if not self._segments or self._segments[-1].end >= self._segment_bytes:
            self._segments.append(_Segment(self._directory))
        self._segments[-1].append(frame)
        self._batches += 1
        self.nbytes += len(frame)

    def popleft(self) -> Batch:
        """Return the oldest batch and forget it."""
        if not self._batches:
            raise IndexError("pop from an empty spill file")
        segment = self._segments[0]
        batch = segment.popleft()
        self._batches -= 1
        if segment.start == segment.end:
            self._drop(segment)
        return batch

    def close(self) -> None:
        """Forget what is left and free the disk."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        self._batches = self.nbytes = 0

    def _drop(self, segment: _Segment) -> None:
        """Free a segment whose batches are all gone; the last one is emptied instead, to be filled again."""
        self.nbytes -= segment.end
        if len(self._segments) == 1:
            segment.clear()
        else:
            self._segments.popleft().close()


class _Segment:
    """One file of frames, filled at `end` and emptied at `start`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = opened(directory)
        self.start = self.end = 0

    def append(self, frame: bytes) -> None:
        write_all(self._file.fileno(), frame, self._directory)
        self.end += len(frame)

    def popleft(self) -> Batch:
        fd = self._file.fileno()
        size, header_length = PREFIX.unpack(os.pread(fd, PREFIX.size, self.start))
        body = np.empty(size, np.uint8)
        read = os.preadv(fd, [body.data], self.start + PREFIX.size)
        if read != size:
            raise InputError(f"cannot read back from {self._directory}: a spilled batch is cut short")
        self.start += PREFIX.size + size
        return unpack(body, header_length)

    def clear(self) -> None:
        os.ftruncate(self._file.fileno(), 0)
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        self.start = self.end = 0

    def close(self) -> None:
        self._file.close()


def opened(directory: Path) -> IO[bytes]:
    """Open a file without a name, making the directory if need be."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=directory, buffering=0)
    except OSError as error:
        raise explained(error, directory, "spill to") from error
