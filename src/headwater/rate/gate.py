"""What stands between a promised flow and its sources: counts what comes, and sheds or holds what is above the promise."""

from __future__ import annotations

import time
from typing import Any

from headwater.clock import now_ns
from headwater.data.batch import CREATED, Batch
from headwater.data.schema import Schema
from headwater.flow.contract import Above
from headwater.flow.endpoints import Reader, dropped_by
from headwater.rate.bucket import Bucket
from headwater.rate.windows import Windows


class Gate:
    """A reader before another one, which has everything else that one has.

    What comes from another part of the same flow `passes`: it was let in where that begins, and is neither shed nor held.
    """

    why_dropped = "above the promised rate"

    def __init__(
        self, reader: Reader, schema: Schema, bucket: Bucket, windows: Windows, *, passes: bool = False
    ) -> None:
        self._reader, self._schema, self._bucket, self._windows = reader, schema, bucket, windows
        self._how: Above = "best effort" if passes else windows.contract.above
        self._shed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    @property
    def dropped(self) -> int:
        """Records that the reader had no room for, or that came above the promise and are shed."""
        return dropped_by(self._reader) + self._shed

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Read what may be read now; where the rest has to wait, no more than that."""
        if self._how == "block":
            limit = min(limit, self._room(timeout_s))
        batch = self._reader.read(limit, timeout_s) if limit else Batch.none(self._schema)
        if batch is None or not batch.length:
            return batch
        self._windows.came(batch.stamps[:, CREATED])
        # by when they were created: a lane that had to wait and finds many is not above its promise
        first_ns, last_ns = (int(batch.stamps[at, CREATED]) for at in (0, -1))
        if self._how == "block":
            first_ns = last_ns = now_ns()
        within = self._bucket.take(batch.length, last_ns / 1e9, first_ns / 1e9)
        if self._how == "shed" and within < batch.length:
            self._shed += batch.length - within
            return batch.slice(0, within)
        return batch

    def _room(self, timeout_s: float) -> int:
        """Return how many records may be read, after a wait for the first."""
        room = self._bucket.room(now_ns() / 1e9)
        if not room and timeout_s:
            time.sleep(min(timeout_s, 1 / self._bucket.rate_hz))
            room = self._bucket.room(now_ns() / 1e9)
        return room

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
