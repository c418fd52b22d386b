"""Records of one or several streams in one order, as matchers take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Nullable, Text, parts


@dataclass(frozen=True)
class Part:
    """The records of one stream in a chunk, and their places in its order."""

    stream: int
    batch: Batch
    places: Array | None  #: None when the chunk has no others


@dataclass(frozen=True)
class Chunk:
    """Records in order, with the time and the key's slot of each; the time of a key never runs back."""

    parts: tuple[Part, ...]
    times: Array
    slots: Array
    stamps: Array

    @property
    def length(self) -> int:
        """How many records there are."""
        return len(self.times)

    def mask(self, stream: int, test: Callable[[Batch], Array] | None) -> Array:
        """Return which records are of a stream and pass a test."""
        out = np.zeros(self.length, np.bool_)
        for part in self.parts:
            if part.stream == stream:
                passes = np.ones(part.batch.length, np.bool_) if test is None else test(part.batch)
                if part.places is None:
                    return passes
                out[part.places] = passes
        return out

    def column(self, stream: int, compute: Callable[[Batch], Column]) -> Column | None:
        """Return a column of a stream in the chunk's order; what other streams have there has no meaning."""
        for part in self.parts:
            if part.stream == stream:
                column = compute(part.batch)
                return column if part.places is None else _scatter(column, part.places, self.length)
        return None

    def keep(self, mask: Array) -> Chunk:
        """Return the chunk with the chosen records alone."""
        new_place = np.cumsum(mask) - 1
        parts = []
        for part in self.parts:
            if part.places is None:
                parts.append(Part(part.stream, part.batch.filter(mask), None))
            else:
                inside = mask[part.places]
                parts.append(Part(part.stream, part.batch.filter(inside), new_place[part.places[inside]]))
        return Chunk(tuple(parts), self.times[mask], self.slots[mask], self.stamps[mask])

    def repeat(self, source: Array, slots: Array) -> Chunk:
        """Return a chunk whose records are those at `source`, which never falls, with these slots."""
        parts = []
        for part in self.parts:
            row = np.full(self.length, -1, np.int64)
            row[np.arange(self.length) if part.places is None else part.places] = np.arange(part.batch.length)
            rows = row[source]
            places = np.flatnonzero(rows >= 0)
            parts.append(Part(part.stream, part.batch.take(rows[places]), places))
        return Chunk(tuple(parts), self.times[source], slots, self.stamps[source])


def _scatter(column: Column, places: Array, length: int) -> Column:
    values, valid = parts(column)
    if isinstance(values, Text):
        spread: Column = _scatter_text(values, places, length)
    else:
        spread = np.zeros(length, values.dtype)
        spread[places] = values
    if valid is None:
        return spread
    mask = np.ones(length, np.bool_)
    mask[places] = valid
    assert not isinstance(spread, Nullable)
    return Nullable(spread, mask)


def _scatter_text(texts: Text, places: Array, length: int) -> Text:
    # texts elsewhere are empty: their lengths are 0, and order within the stream is kept
    order = np.argsort(places)
    sizes = np.zeros(length, np.int32)
    sizes[places] = texts.lengths()
    offsets = np.zeros(length + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    packed = texts.take(order)
    return Text(packed.data, offsets)
