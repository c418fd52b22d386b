"""Open-loop sources: records made up, or replayed from elsewhere, at a rate that no flow can slow down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from sys import maxsize
from typing import Any, Self, cast

import numpy as np

from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Column, Text, parts
from headwater.data.schema import DTYPES, Fields, Schema, Type
from headwater.errors import FlowError, InputError
from headwater.flow.duration import Duration
from headwater.flow.endpoints import Reject, Source
from headwater.flow.identity import Identity, identity_of
from headwater.flow.places import Place, place_of
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.clock import Clock, SteadyClock
from headwater.io.memory import Items
from headwater.io.open_loop import OpenLoop, RecordsFrom
from headwater.io.open_loop_source import OpenLoopSource
from headwater.io.rates import Rate, rate_of
from headwater.io.text_file import TextFile, content_of

Make = Callable[[Array], Mapping[str, Any]]  #: takes record numbers, returns columns of as many values

_BLOCK = 2**14  # records made, or repeated, at once; what is handed out are slices of it
#: what NumPy says to a function that takes an array for a number
_FOR_ONE = (
    "only integer scalar arrays",
    "only length-1 arrays",
    "only 0-dimensional arrays",
    "truth value of an array",
)
_AHEAD = 16  # times what was asked for, at most: records that are due now do not wait for those of the next seconds
_BLOCK_BYTES = 2**26  # fewer, if these bytes would not hold them


class _AtRate(OpenLoopSource):
    """Records of certain columns at a certain rate."""

    def __init__(self, schema: Schema, open_loop: OpenLoop) -> None:
        if open_loop.time is not None and schema.type_of(open_loop.time, what="time") != "time":
            raise FlowError(f"time names a column of type time; {open_loop.time!r} is {schema[open_loop.time]}")
        self._schema, self._open_loop = schema, open_loop

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self._schema

    @property
    def open_loop(self) -> OpenLoop:
        """When records are due."""
        return self._open_loop

    def at_rate(self, rate: Rate | float) -> Self:
        """Return the same records at another rate."""
        source = copy(self)
        source._open_loop = replace(self._open_loop, rate=rate_of(rate))
        return source


class Generate(_AtRate):
    """Makes records at a set rate: `make` gets the records' numbers (0, 1, 2, …) and returns their columns.

    The numbers come as one array, thousands at a time, and every column has a value for each of them. `make` must give
    the same values for the same numbers: a run that is taken up again may ask twice.

    `rate` is a number of records per second or one of `headwater.io.rates`. The source ends after `count`
    records or after `duration`, else never. The column named `time`, which `make` leaves out, gets the
    moment each record was due. Records are gathered for a `tick`, since a batch per record would cost more
    than the records.

    >>> source = Generate(lambda n: {"x": n * 0.5}, {"x": float}, rate=1_000_000, count=3)
    >>> source.open(print).read(limit=3, timeout_s=60).rows()
    [{'x': 0.0}, {'x': 0.5}, {'x': 1.0}]
    """

    anywhere = True  # a number is all that it takes to go on

    def __init__(
        self,
        make: Make,
        schema: Fields,
        rate: Rate | float,
        *,
        count: int | None = None,
        duration: Duration | None = None,
        time: str | None = None,
        tick: Duration = "1 ms",
        clock: Clock | None = None,
    ) -> None:
        self.make = make
        open_loop = OpenLoop(rate_of(rate), count, duration, time, tick, clock or SteadyClock())
        super().__init__(Schema.of(schema), open_loop)

    def numbered(self, reject: Reject) -> tuple[RecordsFrom, int]:
        """Return what makes any records by their numbers, due or not, and how many there can be."""
        return _Blocks(self).take, maxsize

    @property
    def identity(self) -> Identity:
        """What `make` says of itself in an attribute `identity`, if it does."""
        own = getattr(self.make, "identity", None)
        return {} if own is None else {"identity": own}

    def __str__(self) -> str:
        return f"generated at {self.open_loop.rate}"


class Replay(_AtRate):
    """Reads a source once into memory and hands its records out at a rate, over and over if `loop` is true.

    Rates and limits are those of `Generate`. With `time`, that column's own values give way to the moment
    each record was due, so that event time goes on when the records start over.

    >>> from headwater.io import Items
    >>> replay = Replay(Items([{"id": "a"}, {"id": "b"}]), rate=1_000_000, count=3)
    >>> replay.open(print).read(limit=3, timeout_s=60).rows()
    [{'id': 'a'}, {'id': 'b'}, {'id': 'a'}]
    """

    def __init__(
        self,
        records: Source | Batch,
        rate: Rate | float,
        *,
        loop: bool = True,
        count: int | None = None,
        duration: Duration | None = None,
        time: str | None = None,
        tick: Duration = "1 ms",
        clock: Clock | None = None,
    ) -> None:
        self.records, self.loop = records, loop
        open_loop = OpenLoop(rate_of(rate), count, duration, time, tick, clock or SteadyClock())
        super().__init__(_schema_of(records) if isinstance(records, Batch) else records.schema, open_loop)

    def numbered(self, reject: Reject) -> tuple[RecordsFrom, int]:
        """Load the records; return what hands out any of them by number, due or not, and how many there can be."""
        batch = self.records if isinstance(self.records, Batch) else _load(self.records, reject)
        return _Loop(batch, self.records).take, maxsize if self.loop else len(batch)

    @property
    def most(self) -> int | None:
        """No end of them, where they start over; otherwise not known before they are loaded."""
        return maxsize if self.loop else None

    def ranges(self, request: RangeRequest) -> Ranges | None:
        """Return the records in ranges of their numbers; those in memory are this process's own."""
        return None if isinstance(self.records, Batch | Items) else super().ranges(request)

    @property
    def identity(self) -> Identity:
        """What it loads: which record has which number depends on all of them."""
        if isinstance(self.records, Batch):
            return {}
        content = content_of(Path(self.records.path)) if isinstance(self.records, TextFile) else {}
        return {"of": identity_of(self.records), **content}

    def claims(self, *, writing: bool) -> Place | None:
        """Return what the source that it loads reads."""
        return place_of(self.records, writing=False)

    def __str__(self) -> str:
        return f"{self.records} at {self.open_loop.rate}"


class _Blocks:
    """Calls `make` for a block of records at a time and hands out slices of it."""

    def __init__(self, source: Generate) -> None:
        self._make = source.make
        time = source.open_loop.time
        self._schema = source.schema.only(tuple(name for name in source.schema if name != time))
        self._first = 0
        self._block = Batch.none(self._schema)
        self._most = 16  # until it is known how large records are

    def take(self, start: int, count: int) -> Batch:
        if not self._first <= start <= start + count <= self._first + len(self._block):
            numbers = np.arange(start, start + max(count, min(self._most, _AHEAD * count)))
            try:
                columns = self._make(numbers)
            except (TypeError, ValueError) as error:
                if any(hint in str(error) for hint in _FOR_ONE):
                    error.args = (f"{error}; make gets an array of record numbers, not one of them",)
                raise
            self._block, self._first = Batch.of(columns, self._schema), start
            if len(self._block) != len(numbers):
                raise InputError(
                    f"make was asked for {len(numbers)} records and returned columns of {len(self._block)}; "
                    "it takes an array of record numbers and returns one value per number"
                )
            per_record = max(1, self._block.nbytes // len(self._block))
            self._most = max(1, min(_BLOCK, _BLOCK_BYTES // per_record))
        return self._block.slice(start - self._first, start - self._first + count)


class _Loop:
    """Hands out runs of one batch, wrapping round at its end."""

    def __init__(self, batch: Batch, origin: object) -> None:
        if not len(batch):
            raise InputError(f"there is nothing to replay: {origin} has no records")
        repeats = max(1, min(-(-_BLOCK // len(batch)), _BLOCK_BYTES // max(1, batch.nbytes)))
        # a short batch is laid end to end, so that few runs have to wrap
        self._batch = batch if repeats == 1 else batch.take(np.tile(np.arange(len(batch)), repeats))

    def take(self, start: int, count: int) -> Batch:
        at = start % len(self._batch)
        runs = []
        while count:
            run = self._batch.slice(at, min(at + count, len(self._batch)))
            runs.append(run)
            count, at = count - len(run), 0
        return concat_batches(runs)


def _load(source: Source, reject: Reject) -> Batch:
    reader = source.open(reject)
    try:
        batches = [Batch.none(source.schema)]
        while (batch := reader.read(_BLOCK, 1.0)) is not None:
            batches.append(batch)
        return concat_batches(batches)
    finally:
        reader.close()


def _schema_of(batch: Batch) -> Schema:
    return Schema(tuple((name, _type_of(column)) for name, column in batch.columns.items()))


def _type_of(column: Column) -> Type:
    values, _ = parts(column)
    if isinstance(values, Text):
        return "text"
    return cast(Type, next(kind for kind, dtype in DTYPES.items() if dtype == values.dtype))
