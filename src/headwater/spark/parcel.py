"""What moves between stages: the records of one stream for one bucket, as bytes, with marks of event time among them.

A row of the stream that Spark sees is `(bucket, target, seq, frame)`: a whole parcel, addressed to an entry of a stage.
While records are under way, the second of their stamps is their place in the order of the micro-batch, so that those
that took different ways can be put into one order again; when they were emitted is kept once for the parcel. `seq` is
the place of its first record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct

import msgspec
import numpy as np

from headwater.flow.batch import EMITTED, Batch, concat_batches
from headwater.io.frames import PREFIX, pack, unpack

#: The columns of a row, as Spark writes them.
ROW = "bucket int, target int, seq long, frame binary"
Row = tuple[int, int, int, bytes]

COUNTS = -1  #: the target of rows that hold what steps counted
FIRST_SINK = 1_000_000  #: targets from here on are sinks

SUB = 12  #: bits of a place for the results of one record
PIECE = 24 + SUB  #: bits of a place within one piece of a source
LAST = 2**62  #: the place of what comes after all records
_LENGTH = Struct("<Q")
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


@dataclass(slots=True)
class Parcel:
    """Records of one stream that one stage sent, and the marks among them: (place, watermark), in order."""

    sender: int
    emitted_ns: int
    batch: Batch | None
    marks: list[tuple[int, int]] = field(default_factory=list)
    #: what a task said of the records, when it has written them itself; only their stamps travel then
    said: bytes = b""

    def pack(self) -> bytes:
        """Return the parcel as bytes."""
        header = _encode([self.sender, self.emitted_ns, self.marks, self.said])
        return b"".join([_LENGTH.pack(len(header)), header, b"" if self.batch is None else pack(self.batch)])

    @classmethod
    def unpack(cls, frame: bytes) -> Parcel:
        """Return the parcel of these bytes; its columns can be written."""
        (length,) = _LENGTH.unpack_from(frame)
        start = _LENGTH.size + length
        sender, emitted_ns, marks, said = _decode(memoryview(frame)[_LENGTH.size : start])
        batch = None
        if len(frame) > start:
            _, header = PREFIX.unpack_from(frame, start)
            batch = unpack(np.frombuffer(bytearray(memoryview(frame)[start + PREFIX.size :]), np.uint8), header)
        return cls(sender, emitted_ns, batch, [(place, watermark) for place, watermark in marks], said)

    def places(self) -> set[int]:
        """Return where something changes: at its marks, and behind its last record."""
        return {place for place, _ in self.marks} | {LAST}

    def taken_up_to(self, place: int) -> Batch | None:
        """Take the records up to a place; None when there are none."""
        if self.batch is None:
            return None
        whole = self.batch
        stop = int(np.searchsorted(whole.stamps[:, EMITTED], place, side="right"))
        self.batch = whole.slice(stop, whole.length) if stop < whole.length else None
        return (whole.slice(0, stop) if stop < whole.length else whole) if stop else None


def in_order(parcels: Sequence[Parcel]) -> Parcel:
    """Make one parcel of those that the buckets of a stage, or the pieces of a source, sent in a micro-batch."""
    if len(parcels) == 1:
        return parcels[0]
    batches = [parcel.batch for parcel in parcels if parcel.batch is not None]
    batch = concat_batches(batches) if batches else None
    if batch is not None and len(batches) > 1:
        places = batch.stamps[:, EMITTED]
        if (places[1:] < places[:-1]).any():
            batch = batch.take(np.argsort(places, kind="stable"))
    marks = sorted({mark for parcel in parcels for mark in parcel.marks})
    first = min(parcel.emitted_ns for parcel in parcels)
    return Parcel(parcels[0].sender, first, batch, marks)
