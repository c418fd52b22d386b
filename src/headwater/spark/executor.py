"""Runs one stage in one place, step after step, on what comes for one bucket; no threads, no queues, no Spark.

Steps are the engine's own stations, so broken records, event time and counts are what they are there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from headwater.engine.counters import Counters
from headwater.engine.plan import Instance, Route
from headwater.engine.queue import Entry as QueueEntry
from headwater.engine.station import Delivery, Station
from headwater.flow.batch import EMITTED, END, NO_WATERMARK, Batch, concat_batches
from headwater.flow.column import Array, Nullable
from headwater.flow.flow import DEAD_LETTERS
from headwater.flow.steps import EventTime
from headwater.operators import DEAD, Operator, build
from headwater.operators.operator import partitions
from headwater.operators.snapshot import unpacked
from headwater.spark.parcel import FIRST_SINK, LAST, PIECE, SUB, Parcel, Row, in_order, pieces
from headwater.spark.stages import Entry, Layout, Stage

_EXAMPLES = 5
_SAMPLE = 1024  #: stamps that tell the latency of all records of a batch
_FLUSHES = 10  #: bits of a place for how often one piece of a source was handed over
_TURN = 256  #: records of one stream before it is another's turn
_FULL = 2**18  #: records for which a source's stage does not wait any longer before it sends them on


class Executor:
    """One stage at work on one bucket, or on one part of a source."""

    def __init__(
        self, layout: Layout, stage: Stage, bucket: int | None = None, operators: dict[str, Operator] | None = None
    ) -> None:
        self.layout, self.stage, self.bucket = layout, stage, bucket
        self._is_first = bucket is None or bucket == stage.first_bucket
        self._state_bytes: dict[str, int] = {}  #: of each step, as it was last saved
        given = operators or {}
        self.operators = {
            name: given.get(name) or build(layout.flow.steps[name])
            for name in stage.steps
            if layout.natures[name].place not in ("source", "sink")
        }
        self._exits: list[_Exit] = []
        #: inputs by which every copy of a step learns the same, in a copy that is not the first
        self._learning: set[tuple[int, int]] = set()
        self.stations, self._channels = self._wired()
        self._at = 0  #: the place in the order that is being worked on
        self._given = 0  #: the last place that was given to a record of the source
        self._emitted_ns = 0
        self.ended = False  #: whether the source has come to its end
        self.examples: list[dict[str, str]] = []
        self.reset_counts()

    def _wired(self) -> tuple[dict[str, Station], dict[tuple[int, int], list[tuple[int, int]]]]:
        """Join the steps of the stage; return the stations, and for each entry and sender where its records go."""
        flow, names = self.layout.flow, [n for n in self.stage.steps if self.layout.natures[n].place != "sink"]
        instances = {name: Instance(i, flow.steps[name], 0) for i, name in enumerate(names)}
        channels: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for entry in self.layout.entries:
            if entry.stage == self.stage.number:
                for sender in entry.senders:
                    channels[entry.number, sender] = [_channel(instances[step], port) for step, port in entry.readers]
                    if entry.spread == "all" and not self._is_first:
                        targets = zip(entry.readers, channels[entry.number, sender], strict=True)
                        self._learning |= {to for (step, _), to in targets if self.operators[step].replicable}
        for name, instance in instances.items():
            for number, port in enumerate(instance.step.outputs):
                for target in self._targets(name, port, instances):
                    instance.routes.setdefault(number, []).append(Route("one", (), (target,)))
        if DEAD_LETTERS in instances:
            after = _downstream(self.layout, DEAD_LETTERS)
            for name, instance in instances.items():
                if name not in after:
                    route = Route("one", (), (_channel(instances[DEAD_LETTERS], 0),))
                    instance.routes.setdefault(DEAD, []).append(route)
        stations = {}
        for name, instance in instances.items():
            stations[name] = Station(instance, self.operators.get(name))
            stations[name].on_dead = self._note_dead
        return stations, channels

    def _targets(self, name: str, port: str, instances: dict[str, Instance]) -> Iterator[tuple[int, int]]:
        for step in self.layout.flow.readers_of(name, port):
            for number, given in enumerate(step.inputs):
                if (given.step, given.port) != (name, port):
                    continue
                if step.name in instances:
                    yield _channel(instances[step.name], number)
                elif step.is_sink:
                    yield self._exit(len(instances), _Exit(None, FIRST_SINK + self.layout.sinks.index(step.name)))
        for entry in self.layout.entries:
            if entry.stream == (name, port) and self.stage.number in entry.senders:
                yield self._exit(len(instances), _Exit(entry, entry.number))

    def _exit(self, stations: int, made: _Exit) -> tuple[int, int]:
        for i, known in enumerate(self._exits):
            if known.target == made.target:
                return stations + i, 0
        self._exits.append(made)
        return stations + len(self._exits) - 1, 0

    # -- records in ---------------------------------------------------------------------------------------------------

    def read(self, number: int, put_out: Iterable[tuple[int, Batch]]) -> Iterator[Row]:
        """Run a source's stage on one piece of the source, its `number`-th in a micro-batch: batches and dead letters."""
        piece = number << _FLUSHES
        self._begin(piece << PIECE)
        for port, batch in put_out:
            self.emit(batch, port)
            if self._given - (piece << PIECE) > _FULL << SUB:
                yield from self.flush()
                piece += 1
                self._begin(piece << PIECE)
        yield from self.flush()

    def _begin(self, place: int) -> None:
        self._at = self._given = place
        for leaving in self._exits:
            leaving.last = place - 1

    def emit(self, batch: Batch, port: int) -> None:
        """Take what the source has read: records, or dead letters; an empty batch with the watermark END is its last."""
        station = self.stations[self.stage.steps[0]]
        if batch.length:
            if not self._emitted_ns:
                self._emitted_ns = int(batch.stamps[0, EMITTED])
            stamps = batch.stamps.copy()
            stamps[:, EMITTED] = self._given + (np.arange(1, batch.length + 1) << SUB)
            self._at = self._given = int(stamps[-1, EMITTED])
            placed = Batch(batch.columns, batch.length, stamps)
            self._run(station.reject(placed) if port == DEAD else station.emit(placed))
        if batch.watermark == END:
            self.ended = True
            deliveries: list[Delivery] = []
            station.send_mark(END, deliveries)
            self._run(deliveries)

    def take(self, frames: Iterable[tuple[int, bytes]]) -> Iterator[Row]:
        """Run the stage on what has come for its bucket in a micro-batch, (target, frame) each, in the source's order."""
        ways: dict[tuple[int, int], list[Parcel]] = defaultdict(list)
        for target, frame in frames:
            parcel = Parcel.unpack(frame)
            ways[target, parcel.sender].append(parcel)
        self._begin(0)
        given = {way: in_order(ways[way]) for way in sorted(ways)}
        if len(given) == 1:
            self._enter(*given.popitem())
        else:
            self._enter_in_turn(given)
        yield from self.flush()

    def _enter(self, way: tuple[int, int], parcel: Parcel) -> None:
        """Take the records of one stream, with the marks among them."""
        self._emitted_ns = self._emitted_ns or parcel.emitted_ns
        for place, watermark in parcel.marks:
            self._enter_up_to(way, parcel, place)
            self._mark(way, place, watermark)
        self._enter_up_to(way, parcel, LAST)

    def _enter_in_turn(self, given: dict[tuple[int, int], Parcel]) -> None:
        """Take several streams in turn, from mark to mark, so that none runs ahead of the others in time.

        Where event time does not matter, a turn has so many records that what one stream tells is not long in coming.
        """
        places = {place for parcel in given.values() for place in parcel.places()}
        if not any(self.layout.entries[entry].timed for entry, _ in given):
            for parcel in given.values():
                places.update(parcel.every(_TURN))
        for place in sorted(places):
            for way, parcel in given.items():
                self._emitted_ns = self._emitted_ns or parcel.emitted_ns
                self._enter_up_to(way, parcel, place)
            for way, parcel in given.items():
                for at, watermark in parcel.marks:
                    if at == place:
                        self._mark(way, place, watermark)

    def _enter_up_to(self, way: tuple[int, int], parcel: Parcel, place: int) -> None:
        batch = parcel.taken_up_to(place)
        if batch is not None:
            self._at = int(batch.stamps[-1, EMITTED])
            self._run([(*to, batch, NO_WATERMARK, batch.length) for to in self._channels[way]])

    def _mark(self, way: tuple[int, int], place: int, watermark: int) -> None:
        self._at = place
        self._run([(*to, None, watermark, 1) for to in self._channels[way]])

    # -- records on their way -----------------------------------------------------------------------------------------

    def _run(self, given: list[Delivery]) -> None:
        """Walk records and marks through the steps, each to the end of its way before the next begins."""
        stations, waiting = list(self.stations.values()), given[::-1]
        with np.errstate(all="ignore"):
            while waiting:
                to, channel, batch, watermark, count = waiting.pop()
                if batch is not None and watermark != NO_WATERMARK:
                    # the step before has set the time: the mark has its place behind these records
                    self._at = int(batch.stamps[-1, EMITTED]) | self._subs
                    waiting.append((to, channel, None, watermark, 1))
                    watermark = NO_WATERMARK
                if to >= len(stations):
                    self._leave(self._exits[to - len(stations)], batch, watermark)
                    continue
                entry = channel, batch, watermark, time.perf_counter_ns(), count, 0
                if (to, channel) in self._learning:
                    made = _learned(stations[to], entry)
                else:
                    made, _ = stations[to].run([entry])
                if batch is None:
                    made = [self._placed(delivery) for delivery in made]
                waiting += made[::-1]

    def _placed(self, delivery: Delivery) -> Delivery:
        """Give what came of a mark the mark's own place: its records' stamps are older."""
        to, channel, batch, watermark, count = delivery
        if batch is None:
            return delivery
        stamps = batch.stamps.copy()
        stamps[:, EMITTED] = self._at
        return to, channel, Batch(batch.columns, batch.length, stamps, batch.watermark), watermark, count

    def _leave(self, leaving: _Exit, batch: Batch | None, watermark: int) -> None:
        if batch is not None:
            leaving.add(batch, None if self.stage.kind == "source" else self._at)
        if watermark != NO_WATERMARK and leaving.entry is not None and leaving.entry.timed:
            leaving.marks.append((LAST if watermark == END else self._at, watermark))

    @property
    def _subs(self) -> int:
        """The last of the places that results of one record may have, where places are given out."""
        return (1 << SUB) - 1 if self.stage.kind == "source" else 0

    # -- records out --------------------------------------------------------------------------------------------------

    def flush(self) -> Iterator[Row]:
        """Hand over what has left the stage, cut by the buckets that it goes to."""
        for leaving in self._exits:
            batches, marks = leaving.taken()
            batch = concat_batches(batches) if batches else None
            if leaving.entry is None:
                if batch is not None:
                    yield from self._to_sink(leaving.target, batch)
            elif batch is not None or marks:
                for bucket, part in self._by_bucket(leaving.entry, batch):
                    yield from self._to_bucket(bucket, leaving.target, part, marks)
        self._emitted_ns = 0

    def _to_bucket(self, bucket: int, target: int, batch: Batch | None, marks: list[tuple[int, int]]) -> Iterator[Row]:
        for part in pieces(batch) if batch is not None else ():
            yield bucket, target, _first(part), Parcel(self.stage.number, self._emitted_ns, part, marks).pack()
            marks = []
        if marks:
            yield bucket, target, LAST, Parcel(self.stage.number, self._emitted_ns, None, marks).pack()

    def _to_sink(self, target: int, batch: Batch) -> Iterator[Row]:
        staging = self.layout.stagings.get(self.layout.sinks[target - FIRST_SINK])
        if staging is None:
            yield from self._to_bucket(-1 - target % 2, target, batch, [])
            return
        said = staging.write([batch])
        some = batch.of_columns({}).take(np.arange(0, batch.length, -(-batch.length // _SAMPLE)))
        parcel = Parcel(self.stage.number, self._emitted_ns, some, said=said, count=batch.length)
        yield -1 - target % 2, target, _first(batch), parcel.pack()

    def _by_bucket(self, entry: Entry, batch: Batch | None) -> Iterator[tuple[int, Batch | None]]:
        stage = self.layout.stages[entry.stage]
        count, first = stage.buckets, stage.first_bucket
        if entry.spread == "all" or count == 1 or batch is None:
            yield from ((first + i, batch) for i in range(count))
        elif entry.spread == "even":
            edges = [batch.length * i // count for i in range(count + 1)]
            yield from ((first + i, batch.slice(edges[i], edges[i + 1]) or None) for i in range(count))
        else:
            columns = [batch.columns[name] for name in entry.keys]
            plain = [column.values if isinstance(column, Nullable) else column for column in columns]
            parts = partitions(plain, count)
            order = np.argsort(parts, kind="stable")
            bounds = np.searchsorted(parts[order], np.arange(count + 1)).tolist()
            for i in range(count):
                rows = order[bounds[i] : bounds[i + 1]]
                yield first + i, batch.take(rows) if len(rows) else None

    # -- state and counts ---------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Return the state of all steps as bytes."""
        saved = {name: station.save() for name, station in self.stations.items()}
        self._state_bytes = {name: len(each["state"]) for name, each in saved.items() if each["state"]}
        return msgspec.msgpack.encode(saved)

    def load(self, data: bytes) -> None:
        """Go on from saved state."""
        for name, saved in msgspec.msgpack.decode(data).items():
            self.stations[name].load(saved)

    def reset_counts(self) -> None:
        """Start counting anew."""
        self.examples = []
        for station in self.stations.values():
            station.counters = Counters(time.perf_counter_ns())

    def counts(self) -> bytes:
        """Return what the steps have counted, as bytes, and start anew."""
        told = {
            "steps": {name: _counted(station.counters) for name, station in self.stations.items()},
            "examples": self.examples,
            "ended": self.stage.steps[0] if self.ended else None,
            "watermarks": self._watermarks(),
            "state": [self.bucket, self._state_bytes],
        }
        self.reset_counts()
        return msgspec.msgpack.encode(told)

    def _watermarks(self) -> dict[str, int]:
        """Return how far event time has come at the steps that read it."""
        steps = [name for name in self.operators if isinstance(self.layout.flow.steps[name].kind, EventTime)]
        found = {name: unpacked("event time", self.operators[name].snapshot())["watermark"] for name in steps}
        return {name: watermark for name, watermark in found.items() if watermark != NO_WATERMARK}

    def _note_dead(self, batch: Batch) -> None:
        self.examples += batch.rows()[: _EXAMPLES - len(self.examples)]


@dataclass(slots=True)
class _Exit:
    """A way out of the stage: to an entry of another, or to a sink."""

    entry: Entry | None
    target: int
    batches: list[Batch] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
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

    def taken(self) -> tuple[list[Batch], list[tuple[int, int]]]:
        """Return what has gone this way, and begin anew."""
        taken = self.batches, self.marks
        self.batches, self.marks = [], []
        return taken


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


def _learned(station: Station, entry: QueueEntry) -> list[Delivery]:
    """Let a copy of a step take what all its copies take: the first alone counts it, and tells what came of it."""
    counters, on_dead = station.counters, station.on_dead
    station.counters, station.on_dead = Counters(time.perf_counter_ns()), lambda letters: None
    made, _ = station.run([entry])
    station.counters, station.on_dead = counters, on_dead
    return [delivery for delivery in made if delivery[2] is None]


def _first(batch: Batch) -> int:
    return int(batch.stamps[0, EMITTED])


def _counted(counters: Counters) -> list[int]:
    return [
        counters.records_in, counters.records_out, counters.activations, counters.busy_ns, counters.t_c_ns, counters.dead,
    ]  # fmt: skip


def _channel(instance: Instance, port: int) -> tuple[int, int]:
    instance.channel_ports.append(port)
    return instance.index, len(instance.channel_ports) - 1


def _downstream(layout: Layout, name: str) -> set[str]:
    reached = {name}
    for step in layout.flow.in_order():
        if any(given.step in reached for given in step.inputs):
            reached.add(step.name)
    return reached
