"""What moves between stages: the records of one stream for one bucket, as bytes, with watermarks among them.

A row of the stream that Spark sees is `(bucket, target, seq, frame)`: a whole envelope, addressed to an entry of a stage.
While records are under way, the second of their stamps is their place in the order of the micro-batch, so that those
that took different ways can be put into one order again; when they were emitted is kept once for the envelope. `seq` is
the place of its first record, or of its first watermark if it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

import msgspec
import numpy as np

from headwater.data.batch import EMITTED, END, NO_WATERMARK, Batch, concat_batches
from headwater.data.frames import PREFIX, pack, unpack

#: The columns of a row, as Spark writes them.
ROW = "bucket int, target int, seq long, frame binary"
Row = tuple[int, int, int, bytes]

COUNTS = -1  #: the target of rows that hold what steps counted
STATE = -2  #: the target of rows that hold the state of the bucket that `seq` names
FIRST_SINK = 1_000_000  #: targets from here on are sinks

SUB = 12  #: bits of a place for the results of one record
PIECE = 24 + SUB  #: bits of a place within one piece of a source
LAST = 2**62  #: the place of what comes after all records
_LENGTH = Struct("<Q")
_LARGE = 32 * 2**20  #: bytes of records that one row should not exceed: Java copies rows as a whole, again and again
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class OfSplit(NamedTuple):
    """Which split of a source something is of, and the splits that hold more behind what is read in this micro-batch."""

    split: int | str
    behind: tuple[int | str, ...] = ()  #: as far as that is known
    in_order: bool = True  #: false where a later piece of it may be read before an earlier one, as files are by Spark


@dataclass(slots=True)
class Envelope:
    """Records of one stream that one stage sent, and the watermarks among them: (place, watermark), in order."""

    sender: int
    emitted_ns: int  #: 0 for what came of a watermark alone
    batch: Batch | None
    watermarks: list[tuple[int, int]] = field(default_factory=list)
    #: what a task said of records that it has written itself, and how many; of their stamps a sample travels then
    words: bytes = b""
    count: int = 0
    #: of a source, that it comes from: it tells how far time has come in that one alone
    split: OfSplit | None = None

    def pack(self) -> bytes:
        """Return the envelope as bytes."""
        body = b"" if self.batch is None else pack(self.batch)
        header = _encode([self.sender, self.emitted_ns, self.watermarks, self.words, self.count, self.split, len(body)])
        return b"".join([_LENGTH.pack(len(header)), header, _codec().compress(body, asbytes=True) if body else b""])

    @classmethod
    def unpack(cls, frame: bytes) -> Envelope:
        """Return the envelope of these bytes; its columns can be written."""
        (length,) = _LENGTH.unpack_from(frame)
        start = _LENGTH.size + length
        sender, emitted_ns, watermarks, words, count, split, size = _decode(memoryview(frame)[_LENGTH.size : start])
        batch = None
        if size:
            body = _codec().decompress(memoryview(frame)[start:], size)
            _, header = PREFIX.unpack_from(body)
            batch = unpack(np.frombuffer(memoryview(body)[PREFIX.size :], np.uint8), header)  # nobody else has it
        times = [(place, watermark) for place, watermark in watermarks]
        return cls(sender, emitted_ns, batch, times, words, count, None if split is None else _of_split(*split))

    def places(self) -> set[int]:
        """Return where something changes: at its watermarks, and behind its last record."""
        return {place for place, _ in self.watermarks} | {LAST}

    def every(self, count: int) -> list[int]:
        """Return the place of every `count`-th record."""
        places: list[int] = [] if self.batch is None else self.batch.stamps[count - 1 :: count, EMITTED].tolist()
        return places

    def taken_up_to(self, place: int) -> Batch | None:
        """Take the records up to a place; None when there are none."""
        if self.batch is None:
            return None
        whole = self.batch
        stop = int(np.searchsorted(whole.stamps[:, EMITTED], place, side="right"))
        self.batch = whole.slice(stop, whole.length) if stop < whole.length else None
        return (whole.slice(0, stop) if stop < whole.length else whole) if stop else None


@cache
def _codec() -> Any:
    """Return how records are compressed: a gigabyte a second, and Java has a sixth of them to carry."""
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)


def pieces(batch: Batch) -> Iterator[Batch]:
    """Cut a batch into parts of which each makes a row that is not too large."""
    count = max(1, -(-(batch.nbytes + batch.stamps.nbytes) // _LARGE))
    edges = [batch.length * i // count for i in range(count + 1)]
    return (batch.slice(a, b) for a, b in pairwise(edges) if b > a)


def in_order(envelopes: Sequence[Envelope]) -> Envelope:
    """Make one envelope of those that the buckets of a stage, or the pieces of a source, sent in a micro-batch."""
    watermarks = _times_told(envelopes)
    if len(envelopes) == 1:
        envelopes[0].watermarks = watermarks
        return envelopes[0]
    batches = sorted((p.batch for p in envelopes if p.batch is not None), key=lambda b: int(b.stamps[0, EMITTED]))
    batch = concat_batches(batches) if batches else None
    if batch is not None and len(batches) > 1:
        places = batch.stamps[:, EMITTED]
        if (places[1:] < places[:-1]).any():
            batch = batch.take(np.argsort(places, kind="stable"))
    first = min((envelope.emitted_ns for envelope in envelopes if envelope.emitted_ns), default=0)
    return Envelope(envelopes[0].sender, first, batch, watermarks)


def is_of_split(frame: bytes) -> bool:
    """Say whether an envelope, as bytes, comes from a split of a source."""
    (length,) = _LENGTH.unpack_from(frame)
    return _decode(memoryview(frame)[_LENGTH.size : _LENGTH.size + length])[5] is not None


def _of_split(split: int | str, behind: Sequence[int | str], in_order: bool) -> OfSplit:
    return OfSplit(split, tuple(behind), in_order)


def _times_told(envelopes: Sequence[Envelope]) -> list[tuple[int, int]]:
    """Return how far time has come, and where: behind the records of several splits, as far as the last of them.

    Those of each split come one after the other, so that it is told behind all of them; of one split that is in order as it
    was. Time waits for a split that holds more and did not tell; nobody waits for others, of which nothing is left to read.
    """
    every = sorted({each for envelope in envelopes for each in envelope.watermarks})
    reached: dict[int | str, int] = {}
    waited_for: set[int | str] = set()
    mixed = False
    for envelope in envelopes:
        if envelope.split is not None:
            mixed = mixed or not envelope.split.in_order
            waited_for.update(envelope.split.behind)
            times = [watermark for _, watermark in envelope.watermarks if watermark < END]
            if times:
                split = envelope.split.split
                reached[split] = max(*times, reached.get(split, NO_WATERMARK))
    waited_for -= reached.keys()
    if not waited_for and (not reached or (len(reached) < 2 and not mixed)):
        return every
    ends = [(place, watermark) for place, watermark in every if watermark == END]
    return ends if waited_for else [(LAST - 1, min(reached.values())), *ends]
