"""An outlet: the sink at the end of what a lane runs of a flow, which sends records on to other lanes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.engine.lanes.idleness import SourceActivity
from headwater.engine.lanes.ring import THE_END, Bell, Message, Path, Shortcut, barrier, idle_word
from headwater.errors import HeadwaterError
from headwater.flow.steps import EventTime
from headwater.operators.fault_isolation import as_list
from headwater.operators.keys import without_key
from headwater.operators.operator import DEAD, spread

#: How records are spread: each block to the lane that has the least to do, by key, all to the one lane that takes them, or
#: each to every lane
How = Literal["blocks", "key", "one", "all"]
_PATIENCE_S = 0.1  #: how long to wait for room before looking whether the run was aborted


class Outlet:
    """Sends records by paths, one for each lane that takes them.

    `columns` are those that somebody uses there. The others go along all the same with records that may break a step, for
    want of a key or of a value: dead letters hold whole records.

    `blocks` says that what comes in are blocks of a source, whose numbers come as watermarks: they are passed on, so that
    who receives can put the blocks of all lanes back in order. `time` is the step before it, where that tells event time;
    each lane then tells how far its own blocks have come, and the receiver takes the latest. `activity` is told how many
    blocks of a source there are.
    """

    def __init__(
        self,
        paths: Mapping[int, Path],
        room: Bell,
        how: How,
        keys: tuple[str, ...] = (),
        columns: tuple[str, ...] | None = None,
        *,
        blocks: bool = False,
        time: EventTime | None = None,
        activity: SourceActivity | None = None,
    ) -> None:
        self.paths, self.room, self.how, self.keys, self.columns = paths, room, how, keys, columns
        self.blocks, self.time, self.activity = blocks, time, activity
        self.sender: Sender | None = None

    def open(self, schema: Schema) -> Sender:
        """Start sending."""
        self.sender = Sender(self)
        return self.sender

    def __str__(self) -> str:
        return f"to {len(self.paths)} lanes by {', '.join(self.keys) or self.how}"


class Sender:
    """An open outlet. It never makes a worker wait, since that may be the one to make room at the other end.

    What does not fit waits here; `throttle` is told how many records do, so that sources are held back.
    """

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._lanes = sorted(outlet.paths)
        self._batches: list[Batch] = []  #: of the block that is being sent
        self._next_block = 0
        self._stamp = _stamper(outlet.time) if outlet.time is not None else None
        self._time = NO_WATERMARK
        self._lock = threading.Lock()  #: guards what waits, and that one thread at a time writes to a path
        self._waiting: dict[int, deque[Message]] = {lane: deque() for lane in self._lanes}
        self.records = 0  #: that wait here
        self.throttle: Callable[[int], None] = lambda records: None
        self.aborted: Callable[[], bool] = lambda: False
        self.fail: Callable[[Exception], None] = _raise
        self._pusher: threading.Thread | None = None

    def waiting(self) -> int:
        """Return how many records wait here or, on their way, in this lane: of rings all lanes can tell."""
        here = sum(path.waiting() for path in self._outlet.paths.values() if isinstance(path, Shortcut))
        return self.records + here + sum(batch.length for batch in list(self._batches))

    def write(self, batch: Batch) -> None:
        """Take records; those of a block go when all of it is there."""
        if self._outlet.how == "blocks":
            if self._outlet.activity is not None:
                self._outlet.activity.blocks(self._next_block + 1)
            self._put(self._least_busy(), Message(batch, NO_WATERMARK, self._next_block))
            self._next_block += 1
        elif self._outlet.blocks:
            self._batches.append(batch)
        else:
            self._spread(batch, NO_WATERMARK)

    def advance(self, watermark: int) -> None:
        """Learn that a block is complete, or how far event time has come."""
        if watermark == END:
            for lane in self._lanes:
                self._put(lane, THE_END)
        elif self._outlet.blocks:
            batches, self._batches = self._batches, []
            self._send_block(concat_batches(batches) if batches else None, watermark)
        else:
            self._spread(None, watermark)

    def idle(self, idle: bool) -> None:
        """Say that nobody needs to wait for the event time of what comes from here, or again."""
        if not self._outlet.blocks:
            for lane in self._lanes:
                self._put(lane, idle_word(idle))

    def barrier(self, number: int, *, last: bool) -> None:
        """Send the barrier of a checkpoint behind all that was written; no block is half sent then."""
        if self._batches:
            raise AssertionError("a barrier came amid a block")
        for lane in self._lanes:
            self._put(lane, barrier(number, last=last))

    def _least_busy(self) -> int:
        """Return the lane with the fewest records on their way to it, which is the one that works off its own fastest.

        Those with as few take turns.
        """
        turn = self._next_block % len(self._lanes)
        lanes = self._lanes[turn:] + self._lanes[:turn]
        return min(lanes, key=lambda lane: self._outlet.paths[lane].waiting() + self._records_for(lane))

    def _records_for(self, lane: int) -> int:
        with self._lock:
            return sum(message.records for message in self._waiting[lane])

    def _send_block(self, batch: Batch | None, number: int) -> None:
        if batch is None or self._stamp is None:
            self._spread(batch, NO_WATERMARK, number)
            return
        parts = self._stamp(batch)
        if not parts:
            self._spread(None, NO_WATERMARK, number)
        for i, part in enumerate(parts):
            self._time = part.watermark
            self._spread(part, self._time, number, whole=i == len(parts) - 1)

    def _spread(self, batch: Batch | None, watermark: int, block: int = -1, *, whole: bool = True) -> None:
        """Send each lane its records; one that gets none still learns how far the others are."""
        if batch is not None and self._outlet.columns is not None:
            batch = without_unused(batch, self._outlet.columns, self._outlet.keys)
        if batch is None or self._outlet.how != "key" or len(self._lanes) == 1:
            parts: list[Batch | None] = [batch] * len(self._lanes)
        else:
            parts = spread(batch, self._outlet.keys, len(self._lanes))
        for lane, part in zip(self._lanes, parts, strict=True):
            if part is not None or block >= 0 or watermark > NO_WATERMARK:
                self._put(lane, Message(part, watermark, block, whole))

    def _put(self, lane: int, message: Message) -> None:
        try:
            self._offer(lane, message)
        except HeadwaterError as error:  # values that no frame can hold: the others would wait for them for ever
            self.records += message.records
            self.fail(error)

    def _offer(self, lane: int, message: Message) -> None:
        with self._lock:
            waiting = self._waiting[lane]
            if not waiting and self._outlet.paths[lane].offer(message):
                return
            waiting.append(message)
            self.records += message.records
            if self._pusher is None:
                self._pusher = threading.Thread(target=self._push_all, name="send to lanes", daemon=True)
                self._pusher.start()
        self.throttle(self.records)

    def _push_all(self) -> None:
        try:
            self._push_till_done()
        except Exception as error:  # nobody else would hear of it
            self.fail(error)

    def _push_till_done(self) -> None:
        """Bring what waits to where there is room, until nothing waits."""
        while not self.aborted():
            with self._lock:
                before = self.records
                for lane, waiting in self._waiting.items():
                    while waiting and self._outlet.paths[lane].push(waiting[0]):
                        self.records -= waiting.popleft().records
                is_done = not any(self._waiting.values())
                if is_done:
                    self._pusher = None
            if self.records != before:
                self.throttle(self.records)
            if is_done:
                return
            self._outlet.room.wait(_PATIENCE_S)

    def close(self) -> None:
        """Wait until everything is on its way; once the run is aborted, what waits stays here."""
        pusher = self._pusher
        if pusher is not None:
            pusher.join()


def without_unused(batch: Batch, columns: tuple[str, ...], keys: tuple[str, ...]) -> Batch:
    """Return a batch with the columns that are used alone; as it is, if one of these lacks a value anywhere."""
    used = {name: batch.columns[name] for name in columns}
    whole = all(isinstance(column, Text) or type(column) is np.ndarray for column in used.values())
    if not whole or without_key(batch, keys) is not None:
        return batch
    return Batch(used, batch.length, batch.stamps, batch.watermark)


def _raise(error: Exception) -> None:
    raise error


def _stamper(kind: EventTime) -> Callable[[Batch], list[Batch]]:
    """Return what tells the event time of records whose times were found good before, cut where one is late."""
    from headwater.operators.time import EventTimeOperator

    operator = EventTimeOperator(kind, "")

    def stamped(batch: Batch) -> list[Batch]:
        return [part for port, part in as_list(operator.process(batch, 0)) if port != DEAD]

    return stamped
