"""Bridges within a process: several engines side by side run the parts of a flow, for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Condition

from headwater.data.batch import NO_WATERMARK, Batch
from headwater.data.schema import Schema
from headwater.deploy.bridge.arrivals import SILENT, Arrivals
from headwater.deploy.cut import Crossing
from headwater.flow.endpoints import Reject


class MemoryEnds:
    """Both ends of every crossing of a cut, in this process."""

    def __init__(self) -> None:
        self._bridges: dict[Crossing, MemoryBridge] = {}

    def outlet(self, crossings: Sequence[Crossing]) -> MemoryOutlet:
        """Return where the records of a stream go in."""
        return MemoryOutlet([self.inlet(crossing) for crossing in crossings])

    def inlet(self, crossing: Crossing) -> MemoryBridge:
        """Return where they come out at one site."""
        return self._bridges.setdefault(crossing, MemoryBridge(crossing.schema))


class MemoryOutlet:
    """Writes to the bridges to all sites that a stream goes to."""

    hears_time = True

    def __init__(self, bridges: list[MemoryBridge]) -> None:
        self._bridges = bridges
        self._watermark = NO_WATERMARK

    def open(self, schema: Schema) -> MemoryOutlet:
        """Start writing."""
        return self

    def write(self, batch: Batch) -> None:
        """Send records; how far time has come when they were made is told apart, by `advance`."""
        for bridge in self._bridges:
            bridge.put(Batch(batch.columns, batch.length, batch.stamps))

    def advance(self, watermark: int) -> None:
        """Tell the other sides how far event time has come."""
        self._watermark = watermark
        for bridge in self._bridges:
            bridge.put(Batch.of_watermark(watermark))

    def idle(self, idle: bool) -> None:
        """Tell the other sides that nobody needs to wait for the stream, or again."""
        if idle or self._watermark > NO_WATERMARK:
            for bridge in self._bridges:
                bridge.put(SILENT if idle else Batch.of_watermark(self._watermark))

    def close(self) -> None:
        """Nothing to release."""

    def __str__(self) -> str:
        return "in memory"


class MemoryBridge:
    """What was put in can be read. It knows no bounds, and can be opened once."""

    tells_time = True

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._waiting = Arrivals()
        self._changed = Condition()

    def open(self, reject: Reject) -> MemoryBridge:
        """Start reading."""
        return self

    def put(self, message: Batch) -> None:
        """Send records, or a word about event time."""
        with self._changed:
            self._waiting.append(message)
            self._changed.notify()

    @property
    def idle(self) -> bool:
        """Whether nobody needs to wait for the stream."""
        return self._waiting.idle

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return what was sent, up to the next word about event time."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting), timeout_s)
            return self._waiting.take(limit)

    def close(self) -> None:
        """Nothing to release."""

    def __str__(self) -> str:
        return "in memory"
