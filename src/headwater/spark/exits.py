"""Where records leave a stage: to the buckets of other stages, and to sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from headwater.data.batch import EMITTED, END, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Array
from headwater.operators.operator import spread
from headwater.spark.envelope import FIRST_SINK, LAST, SUB, Envelope, OfSplit, Row, pieces
from headwater.spark.stages import Layout, Stage, StageEntry

_SAMPLE = 1024  #: stamps that tell the latency of all records of a batch
_Watermark = tuple[int, int]  #: a place, and the watermark that holds from there on


class Exits:
    """All ways out of a stage; what goes there is kept until it is handed over."""

    def __init__(self, layout: Layout, stage: Stage) -> None:
        self._layout, self._stage = layout, stage
        self._ways: list[_Way] = []
        self.split: OfSplit | None = None  #: of the source, that what leaves is from

    def to_entry(self, entry: StageEntry) -> int:
        """Return the number of the way to an entry of another stage."""
        return self._numbered(_Way(entry, entry.number, entry.timed))

    def to_sink(self, name: str) -> int:
        """Return the number of the way to a sink."""
        timed = self._layout.partitionings[name].timed
        return self._numbered(_Way(None, FIRST_SINK + self._layout.sinks.index(name), timed))

    def _numbered(self, way: _Way) -> int:
        for number, other in enumerate(self._ways):
            if other.target == way.target:
                return number
        self._ways.append(way)
        return len(self._ways) - 1

    def begin(self, place: int) -> None:
        """Take note that what leaves from now on has places from `place` on."""
        for way in self._ways:
            way.last = place - 1

    def leave(self, number: int, batch: Batch | None, watermark: int, at: int) -> None:
        """Take records, or a watermark, that leave by a way while `at` is worked on."""
        way = self._ways[number]
        if batch is not None:
            way.add(batch, None if self._stage.kind == "source" else at)
        if watermark != NO_WATERMARK and way.timed:
            way.watermarks.append((LAST if watermark == END else at, watermark))

    def flush(self, emitted_ns: int) -> Iterator[Row]:
        """Hand over what has left the stage, cut by the buckets that it goes to."""
        for way in self._ways:
            batches, watermarks = way.take()
            batch = concat_batches(batches) if batches else None
            if batch is None and not watermarks:
                continue
            if way.entry is None:
                yield from self._to_sink(way.target, batch, watermarks, emitted_ns)
            else:
                for bucket, part in self._by_bucket(way.entry, batch):
                    yield from self._to_bucket(bucket, way.target, part, watermarks, emitted_ns)

    def _to_bucket(
        self, bucket: int, target: int, batch: Batch | None, watermarks: list[_Watermark], emitted_ns: int
    ) -> Iterator[Row]:
        for part in pieces(batch) if batch is not None else ():
            yield bucket, target, _first(part), self._envelope(part, watermarks, emitted_ns)
            watermarks = []
        if watermarks:
            yield bucket, target, watermarks[0][0], self._envelope(None, watermarks, emitted_ns)

    def _envelope(self, batch: Batch | None, watermarks: list[_Watermark], emitted_ns: int) -> bytes:
        return Envelope(self._stage.number, emitted_ns, batch, watermarks, split=self.split).pack()

    def _to_sink(
        self, target: int, batch: Batch | None, watermarks: list[_Watermark], emitted_ns: int
    ) -> Iterator[Row]:
        staging = self._layout.stagings.get(self._layout.sinks[target - FIRST_SINK])
        if staging is None or batch is None:
            yield from self._to_bucket(-1 - target % 2, target, batch, watermarks, emitted_ns)
            return
        words, rest, refusals = staging.write(batch)
        if refusals:  # which the driver will be told too, and makes dead letters of
            yield from self._to_bucket(-1 - target % 2, target, batch.take(np.array(sorted(refusals))), [], emitted_ns)
            batch = rest
        if not batch.length:
            return
        some = batch.of_columns({}).take(np.arange(0, batch.length, -(-batch.length // _SAMPLE)))
        envelope = Envelope(self._stage.number, emitted_ns, some, words=words, count=batch.length)
        yield -1 - target % 2, target, _first(batch), envelope.pack()

    def _by_bucket(self, entry: StageEntry, batch: Batch | None) -> Iterator[tuple[int, Batch | None]]:
        stage = self._layout.stages[entry.stage]
        count = stage.buckets
        parts: list[Batch | None]
        if entry.spread == "all" or count == 1 or batch is None:
            parts = [batch] * count
        elif entry.spread == "even":
            edges = [batch.length * i // count for i in range(count + 1)]
            parts = [batch.slice(edges[i], edges[i + 1]) or None for i in range(count)]
        else:
            parts = spread(batch, entry.keys, count)
        return zip(stage.numbers, parts, strict=True)


@dataclass(slots=True)
class _Way:
    """A way out of the stage: to an entry of another, or to a sink."""

    entry: StageEntry | None
    target: int
    timed: bool  #: whether who is there wants to know how far event time has come
    batches: list[Batch] = field(default_factory=list)
    watermarks: list[_Watermark] = field(default_factory=list)
    last: int = -1  #: the place of the last record that went this way

    def add(self, batch: Batch, at: int | None) -> None:
        """Take a batch; its records keep their places up to `at`, and those of one record get one each at a source."""
        stamps = batch.stamps.copy()
        if at is None:
            stamps[:, EMITTED] = _told_apart(stamps[:, EMITTED], self.last)
        else:  # a result may carry the stamps of a record long past
            stamps[:, EMITTED] = np.maximum.accumulate(np.clip(stamps[:, EMITTED], self.last, at))
        self.last = int(stamps[-1, EMITTED])
        self.batches.append(Batch(batch.columns, batch.length, stamps))

    def take(self) -> tuple[list[Batch], list[_Watermark]]:
        """Return what has gone this way, and begin anew."""
        outcome = self.batches, self.watermarks
        self.batches, self.watermarks = [], []
        return outcome


def _told_apart(places: Array, last: int) -> Array:
    """Return places after `last` in which the results of one record follow each other."""
    subs = (1 << SUB) - 1
    places = np.maximum.accumulate(np.maximum(places, last & ~subs))
    if places[0] > last and (places[1:] > places[:-1]).all():
        return places
    rows = np.arange(len(places))
    first = np.maximum.accumulate(np.where(np.diff(places, prepend=-1) > 0, rows, 0))
    more = (last & subs) + 1 if places[0] == last & ~subs and last >= 0 else 0
    rank = rows - first + np.where(places == places[0], more, 0)
    result: Array = places + np.minimum(rank, subs)
    return result


def _first(batch: Batch) -> int:
    return int(batch.stamps[0, EMITTED])
