"""Runs one stage in one place, step after step, on what comes for one bucket; no threads, no queues, no Spark.

Steps are the engine's own tasks, so broken records, event time and counts are what they are there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from headwater.data.batch import EMITTED, END, NO_WATERMARK, Batch
from headwater.flow.steps import EventTime
from headwater.operators import DEAD, Operator, build
from headwater.operators.counters import Counters
from headwater.operators.queue import Delivery, QueueEntry
from headwater.operators.snapshot import unpack_state
from headwater.operators.task import Task
from headwater.spark.envelope import LAST, PIECE, SUB, Envelope, OfSplit, Row, in_order
from headwater.spark.exits import Exits
from headwater.spark.stages import Layout, Stage
from headwater.spark.tally import COUNTED
from headwater.spark.wiring import wired

_EXAMPLES = 5
_FLUSHES = 10  #: bits of a place for how often one piece of a source was handed over
_TURN = 256  #: records of one stream before it is another's turn
_FULL = 2**18  #: records for which a source's stage does not wait any longer before it sends them on


class Executor:
    """One stage at work on one bucket, or on one part of a source."""

    def __init__(
        self, layout: Layout, stage: Stage, bucket: int | None = None, operators: dict[str, Operator] | None = None
    ) -> None:
        self.layout, self.stage, self.bucket = layout, stage, bucket
        ready = operators or {}
        self.operators = {
            name: ready.get(name) or build(layout.flow.steps[name])
            for name in stage.steps
            if layout.partitionings[name].role not in ("source", "sink")
        }
        self._exits = Exits(layout, stage)
        is_first = bucket is None or bucket == stage.numbers[0]
        wiring = wired(layout, stage, self.operators, self._exits, self._note_dead, is_first=is_first)
        self.tasks, self.channels, self._learning = wiring.tasks, wiring.channels, wiring.learning
        self._at = 0  #: the place in the order that is being worked on
        self._last_place = 0  #: the last place that was given to a record of the source
        self._emitted_ns = 0
        self._state_bytes: dict[str, int] = {}  #: of each step, as it was last saved
        self.ended = False  #: whether the source has come to its end
        self.examples: list[dict[str, str]] = []
        self.reset_counts()

    # -- records in ---------------------------------------------------------------------------------------------------

    def read(self, number: int, put_out: Iterable[tuple[int, Batch]], split: OfSplit | None = None) -> Iterator[Row]:
        """Run a source's stage on one piece of the source, its `number`-th in a micro-batch: batches and dead letters."""
        piece = number << _FLUSHES
        self._exits.split = split
        self._begin(piece << PIECE)
        for port, batch in put_out:
            self.emit(batch, port)
            if self._last_place - (piece << PIECE) > _FULL << SUB:
                yield from self._flush()
                piece += 1
                self._begin(piece << PIECE)
        yield from self._flush()

    def _begin(self, place: int) -> None:
        self._at = self._last_place = place
        self._exits.begin(place)

    def emit(self, batch: Batch, port: int) -> None:
        """Take what the source has read: records or dead letters, and how far event time has come behind them, if it tells.

        An empty batch with the watermark END is its last.
        """
        task = self.tasks[self.stage.steps[0]]
        if batch.length:
            if not self._emitted_ns:
                self._emitted_ns = int(batch.stamps[0, EMITTED])
            stamps = batch.stamps.copy()
            stamps[:, EMITTED] = self._last_place + (np.arange(1, batch.length + 1) << SUB)
            self._at = self._last_place = int(stamps[-1, EMITTED])
            placed = Batch(batch.columns, batch.length, stamps)
            if port == DEAD:
                self._run(task.reject(placed))
            else:
                task.count_read(placed.length)
                self._run(task.emit(placed))
        if batch.watermark > NO_WATERMARK:
            self.ended = batch.watermark == END
            self._at = self._last_place | self._subs
            deliveries: list[Delivery] = []
            task.router.send_watermark(batch.watermark, deliveries)
            self._run(deliveries)

    def take(self, frames: Iterable[tuple[int, bytes]]) -> Iterator[Row]:
        """Run the stage on what has come for its bucket in a micro-batch, (target, frame) each, in the source's order."""
        ways: dict[tuple[int, int], list[Envelope]] = defaultdict(list)
        for target, frame in frames:
            envelope = Envelope.unpack(frame)
            ways[target, envelope.sender].append(envelope)
        self._begin(0)
        streams = {way: in_order(ways[way]) for way in sorted(ways)}
        if len(streams) == 1:
            self._enter(*streams.popitem())
        else:
            self._enter_in_turn(streams)
        yield from self._flush()

    def _enter(self, way: tuple[int, int], envelope: Envelope) -> None:
        """Take the records of one stream, with the watermarks among them."""
        self._emitted_ns = self._emitted_ns or envelope.emitted_ns
        for place, watermark in envelope.watermarks:
            self._enter_up_to(way, envelope, place)
            self._advance(way, place, watermark)
        self._enter_up_to(way, envelope, LAST)

    def _enter_in_turn(self, streams: dict[tuple[int, int], Envelope]) -> None:
        """Take several streams in turn, from watermark to watermark, so that none runs ahead of the others in time.

        Where event time does not matter, a turn has so many records that what one stream tells is not long in coming.
        """
        places = {place for envelope in streams.values() for place in envelope.places()}
        if not any(self.layout.entries[entry].timed for entry, _ in streams):
            for envelope in streams.values():
                places.update(envelope.every(_TURN))
        for place in sorted(places):
            for way, envelope in streams.items():
                self._emitted_ns = self._emitted_ns or envelope.emitted_ns
                self._enter_up_to(way, envelope, place)
            for way, envelope in streams.items():
                for at, watermark in envelope.watermarks:
                    if at == place:
                        self._advance(way, place, watermark)

    def _enter_up_to(self, way: tuple[int, int], envelope: Envelope, place: int) -> None:
        batch = envelope.taken_up_to(place)
        if batch is not None:
            self._at = int(batch.stamps[-1, EMITTED])
            self._run([Delivery(*to, batch, NO_WATERMARK, batch.length) for to in self.channels[way]])

    def _advance(self, way: tuple[int, int], place: int, watermark: int) -> None:
        self._at = place
        self._run([Delivery(*to, None, watermark, 1) for to in self.channels[way]])

    # -- records on their way -----------------------------------------------------------------------------------------

    def _run(self, deliveries: list[Delivery]) -> None:
        """Walk records and watermarks through the steps, each to the end of its way before the next begins."""
        tasks, waiting = list(self.tasks.values()), deliveries[::-1]
        with np.errstate(all="ignore"):
            while waiting:
                to, channel, batch, watermark, count, _ = waiting.pop()
                if batch is not None and watermark != NO_WATERMARK:
                    # the step before has set the time: the watermark has its place behind these records
                    self._at = int(batch.stamps[-1, EMITTED]) | self._subs
                    waiting.append(Delivery(to, channel, None, watermark, 1))
                    watermark = NO_WATERMARK
                if to >= len(tasks):
                    self._exits.leave(to - len(tasks), batch, watermark, self._at)
                    continue
                entry = QueueEntry(channel, batch, watermark, time.perf_counter_ns(), count, 0)
                if (to, channel) in self._learning:
                    results = _learned(tasks[to], entry)
                else:
                    results, _ = tasks[to].run([entry])
                if batch is None:
                    results = [self._placed(delivery) for delivery in results]
                waiting += results[::-1]

    def _placed(self, delivery: Delivery) -> Delivery:
        """Give what came of a watermark the watermark's own place: its records' stamps are older."""
        to, channel, batch, watermark, count, _ = delivery
        if batch is None:
            return delivery
        stamps = batch.stamps.copy()
        stamps[:, EMITTED] = self._at
        return Delivery(to, channel, Batch(batch.columns, batch.length, stamps, batch.watermark), watermark, count)

    def _flush(self) -> Iterator[Row]:
        """Hand over what has left the stage."""
        yield from self._exits.flush(self._emitted_ns)
        self._emitted_ns = 0

    @property
    def _subs(self) -> int:
        """The last of the places that results of one record may have, where places are given out."""
        return (1 << SUB) - 1 if self.stage.kind == "source" else 0

    # -- state and counts ---------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Return the state of all steps as bytes."""
        states = {name: task.save() for name, task in self.tasks.items()}
        self._state_bytes = {name: len(each["state"]) for name, each in states.items() if each["state"]}
        return msgspec.msgpack.encode(states)

    def load(self, data: bytes) -> None:
        """Go on from saved state."""
        for name, state in msgspec.msgpack.decode(data).items():
            self.tasks[name].load(state, ends_again=False)  # a source that has ended is not read again

    def reset_counts(self) -> None:
        """Start counting anew."""
        self.examples = []
        for task in self.tasks.values():
            task.counters = Counters(time.perf_counter_ns())

    def counts(self) -> bytes:
        """Return what the steps have counted, as bytes, and start anew."""
        account = {
            "steps": {name: _counted(task) for name, task in self.tasks.items()},
            "examples": self.examples,
            "ended": self.stage.steps[0] if self.ended else None,
            "watermarks": self._watermarks(),
            "state": [self.bucket, self._state_bytes],
        }
        self.reset_counts()
        return msgspec.msgpack.encode(account)

    def _watermarks(self) -> dict[str, int]:
        """Return how far event time has come at the steps that read it."""
        steps = [name for name in self.operators if isinstance(self.layout.flow.steps[name].kind, EventTime)]
        reached = {name: unpack_state("event time", self.operators[name].snapshot())["watermark"] for name in steps}
        return {name: watermark for name, watermark in reached.items() if watermark != NO_WATERMARK}

    def _note_dead(self, batch: Batch) -> None:
        self.examples += batch.rows()[: _EXAMPLES - len(self.examples)]


def _learned(task: Task, entry: QueueEntry) -> list[Delivery]:
    """Let a copy of a step take what all its copies take: the first alone counts it, and tells what came of it."""
    counters, on_dead = task.counters, task.on_dead
    task.counters, task.on_dead = Counters(time.perf_counter_ns()), lambda letters: None
    results, _ = task.run([entry])
    task.counters, task.on_dead = counters, on_dead
    return [delivery for delivery in results if delivery.batch is None]


def _counted(task: Task) -> dict[str, Any]:
    metrics = task.metrics(time.perf_counter_ns())
    return {name: getattr(metrics, name) for name in COUNTED}
