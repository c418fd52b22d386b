"""Runs one stage in one place, step after step, on what comes for one bucket; no threads, no queues, no Spark.

Steps are the engine's own stations, so broken records, event time and counts are what they are there.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from headwater.engine.plan import Instance, Route
from headwater.engine.station import Counters, Delivery, Station
from headwater.flow.batch import EMITTED, END, NO_WATERMARK, Batch, concat_batches
from headwater.flow.column import Nullable
from headwater.flow.flow import DEAD_LETTERS
from headwater.operators import DEAD, Operator, build
from headwater.operators.operator import partitions
from headwater.spark.parcel import FIRST_SINK, LAST, PIECE, Parcel, Row, in_order
from headwater.spark.stages import Entry, Layout, Stage

_EXAMPLES = 5
_FLUSHES = 10  #: bits of a place for how often one piece of a source was handed over
_FULL = 2**18  #: records for which a source's stage does not wait any longer before it sends them on


class Executor:
    """One stage at work on one bucket, or on one part of a source."""

    def __init__(self, layout: Layout, stage: Stage, operators: dict[str, Operator] | None = None) -> None:
        self.layout, self.stage = layout, stage
        given = operators or {}
        self.operators = {
            name: given.get(name) or build(layout.flow.steps[name])
            for name in stage.steps
            if layout.natures[name].place not in ("source", "sink")
        }
        self._exits: list[_Exit] = []
        self.stations, self._channels = self._wired()
        self._at = 0  #: the place in the order that is being worked on
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
        waiting, piece = 0, number << _FLUSHES
        self._begin(piece << PIECE)
        for port, batch in put_out:
            if port == DEAD:
                self.reject(batch)
            else:
                self.emit(batch)
            waiting += batch.length
            if waiting > _FULL:
                yield from self.flush()
                waiting, piece = 0, piece + 1
                self._begin(piece << PIECE)
        yield from self.flush()

    def _begin(self, place: int) -> None:
        self._at = place
        for leaving in self._exits:
            leaving.last = place - 1

    def emit(self, batch: Batch) -> None:
        """Take a batch that the source has read; an empty one with the watermark END is its last."""
        station = self.stations[self.stage.steps[0]]
        if batch.length:
            if not self._emitted_ns:
                self._emitted_ns = int(batch.stamps[0, EMITTED])
            self._run(station.emit(batch))
        if batch.watermark == END:
            self.ended = True
            deliveries: list[Delivery] = []
            station.send_mark(END, deliveries)
            self._run(deliveries)

    def reject(self, letter: Batch) -> None:
        """Take a dead letter that the source wrote."""
        self._run(self.stations[self.stage.steps[0]].reject(letter))

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
        else:  # from several streams: piece by piece of the source, so that none runs far ahead
            for way, parcel in _alternating(given):
                self._enter(way, parcel)
        yield from self.flush()

    def _enter(self, way: tuple[int, int], parcel: Parcel) -> None:
        batch, start = parcel.batch, 0
        self._emitted_ns = self._emitted_ns or parcel.emitted_ns
        for place, watermark in parcel.marks:
            if batch is not None:
                stop = int(np.searchsorted(batch.stamps[:, EMITTED], place, side="right"))
                if stop > start:
                    self._enter_batch(way, batch.slice(start, stop))
                    start = stop
            self._at = place
            self._run([(*to, None, watermark, 1) for to in self._channels[way]])
        if batch is not None and start < batch.length:
            self._enter_batch(way, batch.slice(start, batch.length))

    def _enter_batch(self, way: tuple[int, int], batch: Batch) -> None:
        self._at = int(batch.stamps[-1, EMITTED])
        self._run([(*to, batch, NO_WATERMARK, batch.length) for to in self._channels[way]])

    # -- records on their way -----------------------------------------------------------------------------------------

    def _run(self, given: list[Delivery]) -> None:
        """Walk records and marks through the steps, first come, first served, until they have left the stage."""
        stations, waiting = list(self.stations.values()), deque(given)
        with np.errstate(all="ignore"):
            while waiting:
                to, channel, batch, watermark, count = waiting.popleft()
                if to >= len(stations):
                    self._leave(self._exits[to - len(stations)], batch, watermark)
                    continue
                now = time.perf_counter_ns()
                if batch is not None:
                    made, _ = stations[to].run([(channel, batch, NO_WATERMARK, now, count, 0)])
                    waiting += made
                if watermark != NO_WATERMARK:
                    made, _ = stations[to].run([(channel, None, watermark, now, 1, 0)])
                    waiting += [self._placed(delivery) for delivery in made]

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
            # the buckets of a stage must agree on a mark's place, and do: all have got it from the stage before
            place = self._at if self.stage.buckets > 1 else leaving.last
            leaving.marks.append((LAST if watermark == END else place, watermark))

    # -- records out --------------------------------------------------------------------------------------------------

    def flush(self) -> Iterator[Row]:
        """Hand over what has left the stage, cut by the buckets that it goes to."""
        for leaving in self._exits:
            batches, marks = leaving.taken()
            batch = concat_batches(batches) if batches else None
            if leaving.entry is None:
                if batch is not None:
                    yield -1 - leaving.target % 2, leaving.target, _first(batch), self._for_sink(leaving, batch)
            elif batch is not None or marks:
                for bucket, part in self._by_bucket(leaving.entry, batch):
                    if part is not None or marks:
                        yield bucket, leaving.target, _first(part), self._packed(part, marks)
        self._emitted_ns = 0

    def _for_sink(self, leaving: _Exit, batch: Batch) -> bytes:
        staging = self.layout.stagings.get(self.layout.sinks[leaving.target - FIRST_SINK])
        if staging is None:
            return self._packed(batch, [])
        said = staging.write([batch])
        return Parcel(self.stage.number, self._emitted_ns, batch.of_columns({}), said=said).pack()

    def _packed(self, batch: Batch | None, marks: list[tuple[int, int]]) -> bytes:
        return Parcel(self.stage.number, self._emitted_ns, batch, marks).pack()

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
        return msgspec.msgpack.encode({name: station.save() for name, station in self.stations.items()})

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
        }
        self.reset_counts()
        return msgspec.msgpack.encode(told)

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
        """Take a batch; its records keep their places up to `at`, or get new ones where the order is made."""
        stamps = batch.stamps.copy()
        if at is None:
            stamps[:, EMITTED] = np.arange(self.last + 1, self.last + 1 + batch.length)
        else:  # a result may carry the stamps of a record long past
            stamps[:, EMITTED] = np.maximum.accumulate(np.clip(stamps[:, EMITTED], self.last, at))
        self.last = int(stamps[-1, EMITTED])
        self.batches.append(Batch(batch.columns, batch.length, stamps))

    def taken(self) -> tuple[list[Batch], list[tuple[int, int]]]:
        """Return what has gone this way, and begin anew."""
        taken = self.batches, self.marks
        self.batches, self.marks = [], []
        return taken


def _alternating(given: dict[tuple[int, int], Parcel]) -> Iterator[tuple[tuple[int, int], Parcel]]:
    """Cut the parcels of several streams where the pieces of the source meet; return the parts in turn."""
    cuts = sorted({piece for parcel in given.values() for piece in parcel.pieces()})
    for piece in cuts:
        for way, parcel in given.items():
            part = parcel.part(piece)
            if part is not None:
                yield way, part


def _first(batch: Batch | None) -> int:
    return LAST if batch is None else int(batch.stamps[0, EMITTED])


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
