"""Bridges within a process: several engines side by side run the parts of a flow, for tests and rehearsals."""

from __future__ import annotations

from threading import Condition

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.deploy.bridge.arrivals import Arrivals
from headwater.deploy.cut import Crossing
from headwater.flow.endpoints import Reject


class MemoryEnds:
    """Both ends of every crossing of a cut, in this process."""

    def __init__(self) -> None:
        self._bridges: dict[Crossing, MemoryBridge] = {}

    def outlet(self, crossing: Crossing) -> MemoryBridge:
        """Return where records go in."""
        return self._bridges.setdefault(crossing, MemoryBridge(crossing.schema))

    inlet = outlet


class MemoryBridge:
    """A sink and a source in one: what is written can be read. It knows no bounds, and can be opened once."""

    hears_time = True
    tells_time = True

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._waiting = Arrivals()
        self._changed = Condition()

    def open(self, opener: Reject | Schema) -> MemoryBridge:
        """Start reading or writing."""
        return self

    def write(self, batch: Batch) -> None:
        """Send records; how far time has come when they were made is told apart, by `advance`."""
        self._put(Batch(batch.columns, batch.length, batch.stamps))

    def advance(self, watermark: int) -> None:
        """Tell the other side how far event time has come."""
        self._put(Batch.of_watermark(watermark))

    def _put(self, message: Batch) -> None:
        with self._changed:
            self._waiting.append(message)
            self._changed.notify()

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return what was sent, up to the next word about event time."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting), timeout_s)
            return self._waiting.take(limit)

    def close(self) -> None:
        """Nothing to release."""

    def __str__(self) -> str:
        return "in memory"
