"""An inlet: the source at the beginning of what a lane runs of a flow, where records come in from other lanes."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.schema import Schema
from headwater.engine.lanes.idleness import Idleness
from headwater.engine.lanes.ring import BARRIER, IDLE, Bell, Message, Path
from headwater.flow.endpoints import Reject

_NOTHING = Batch.of_watermark(NO_WATERMARK)


class Inlet:
    """Takes records from paths, one for each lane that sends them.

    `in_order` puts the blocks of all lanes back in the order in which the source was read, by their numbers: any lane may
    have any block. `numbered` hands on the number of each block as its watermark, for steps that know no event time.
    Otherwise records come as they come, and event time is as far as the lane that is behind all others, but for those that
    say that nobody needs to wait for them. `idleness` tells the same of blocks: where nothing has come for long, and nothing
    is on its way.
    """

    #: a source that waits for other lanes: it is read to its end, and holds those lanes back when a queue is full
    inner = True

    def __init__(
        self,
        schema: Schema,
        paths: Mapping[int, Path],
        data: Bell,
        *,
        in_order: bool = False,
        numbered: bool = False,
        idleness: Idleness | None = None,
    ) -> None:
        self._schema, self.paths, self.data, self.in_order, self.numbered = schema, paths, data, in_order, numbered
        self.idleness = idleness

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self._schema

    def open(self, reject: Reject) -> _InOrder | _AsTheyCome:
        """Start taking records."""
        return _InOrder(self) if self.in_order else _AsTheyCome(self)

    def __str__(self) -> str:
        return f"from {len(self.paths)} lanes"


class _Barred:
    """Passes a barrier on when it has come by all paths: what is behind one waits for the others."""

    _barrier: tuple[int, bool] | None = None
    idle = False  #: whether nobody needs to wait for the event time of what comes here

    def take_barrier(self) -> tuple[int, bool] | None:
        """Return the checkpoint whose barrier has come, and whether it is the last; once."""
        barrier, self._barrier = self._barrier, None
        return barrier

    def _bar(self, message: Message) -> Batch:
        self._barrier = message.watermark, message.whole
        return _NOTHING


class _InOrder(_Barred):
    def __init__(self, inlet: Inlet) -> None:
        self._paths, self._data = list(inlet.paths.values()), inlet.data
        self._block = 0  #: the next
        self._time = NO_WATERMARK
        self._idleness = inlet.idleness
        if self._idleness is not None:
            self._idleness.broken()

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        until = time.monotonic() + timeout_s
        while (message := self._take()) is None:
            if not self._paths:
                return None
            remaining_s = until - time.monotonic()
            if remaining_s <= 0:
                return self._nothing()
            self._data.wait(remaining_s)
        if message.block == BARRIER:
            return self._bar(message)
        self._block += message.whole
        if message.batch is None and message.watermark == NO_WATERMARK:
            return self._nothing()
        self._time = max(self._time, message.watermark)
        self.idle = False
        if self._idleness is not None:
            self._idleness.broken()
        return _stamped(message, self._time)

    def _nothing(self) -> Batch:
        """Have nothing to say, but perhaps that this has lasted for long."""
        if self._idleness is not None and not self.idle:
            self.idle = self._idleness.lasts(self._block)
        return _NOTHING

    def _take(self) -> Message | None:
        """Return what comes next of the block whose turn it is; later ones stay where they are."""
        barred = 0
        for path in tuple(self._paths):
            block = path.next_block()
            if block == self._block:
                return path.take()
            if block == -1:  # the end: nothing else is of no block
                path.take()
                self._paths.remove(path)
            barred += block == BARRIER
        if barred and barred == len(self._paths):
            words = [path.take() for path in self._paths]
            return words[0]
        return None

    def close(self) -> None:
        pass


class _AsTheyCome(_Barred):
    def __init__(self, inlet: Inlet) -> None:
        self._paths, self._data, self._numbered = dict(inlet.paths), inlet.data, inlet.numbered
        self._times = dict.fromkeys(self._paths, NO_WATERMARK)
        self._turn = sorted(self._paths)
        self._at_barrier: dict[int, Message] = {}  #: lanes whose barrier has come, unlike that of others
        self._idle: set[int] = set()  #: lanes whose time nobody needs to wait for

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        until = time.monotonic() + timeout_s
        while True:
            for lane in tuple(self._turn):
                message = None if lane in self._at_barrier else self._paths[lane].take()
                if message is not None:
                    self._turn.remove(lane)
                    self._turn.append(lane)
                    return self._hear(lane, message)
            if self._at_barrier and all(lane in self._at_barrier or self._times[lane] == END for lane in self._paths):
                message = self._at_barrier.popitem()[1]
                self._at_barrier.clear()
                return self._bar(message)
            remaining_s = until - time.monotonic()
            if remaining_s <= 0:
                return _NOTHING
            self._data.wait(remaining_s)

    def _hear(self, lane: int, message: Message) -> Batch | None:
        if message.block == BARRIER:
            self._at_barrier[lane] = message
            return _NOTHING
        if message.block == IDLE and message.whole:
            self._idle.add(lane)
        elif message.block == IDLE or message.batch is not None or message.watermark > NO_WATERMARK:
            self._idle.discard(lane)
        self._times[lane] = max(self._times[lane], message.watermark)
        self.idle = bool(self._idle) and all(at == END or lane in self._idle for lane, at in self._times.items())
        earliest = self._earliest()
        if earliest == END:
            return None
        return _stamped(message, message.block if self._numbered else earliest)

    def _earliest(self) -> int:
        """Return the time that no lane is behind, those left out that are idle; the end is that of all."""
        earliest = min((at for lane, at in self._times.items() if lane not in self._idle), default=NO_WATERMARK)
        return NO_WATERMARK if earliest == END and self._idle else earliest

    def close(self) -> None:
        pass


def _stamped(message: Message, watermark: int) -> Batch:
    batch = message.batch
    if batch is None:
        return Batch.of_watermark(watermark)
    return Batch(batch.columns, batch.length, batch.stamps, watermark)  # the sender's own may have gone elsewhere too
