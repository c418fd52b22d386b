"""Models announced by their arrival: a source of the names of new files in a folder."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from headwater.data.batch import Batch, stamped
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import Reject, Resume

_NAMES = Schema.of({"model": str})


class ModelFolder:
    """Names every `*.model` file of a folder when it appears or changes, oldest first; looks `every` so often.

    It never ends, so it is for flows that do not either.
    """

    resume: Resume = "beginning"  # all that are there are named again

    def __init__(self, folder: Path, every: Duration = "500 ms") -> None:
        self.folder, self.every_s = Path(folder), microseconds(every) / 1e6

    @property
    def schema(self) -> Schema:
        """The file's name."""
        return _NAMES

    def open(self, reject: Reject) -> _Watch:
        """Start to look."""
        if not self.folder.is_dir():
            raise InputError(f"cannot watch {self.folder} for models: it is not a folder")
        return _Watch(self)

    def at_rate(self, rate: float) -> ModelFolder:
        """Return this: models come when they come, whatever the rate of messages."""
        return self

    def __str__(self) -> str:
        return f"models in {self.folder}"


class _Watch:
    def __init__(self, source: ModelFolder) -> None:
        self._source = source
        self._seen: dict[str, int] = {}
        self._next = 0.0

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        wait_s = self._next - time.monotonic()
        if wait_s > timeout_s:
            time.sleep(timeout_s)
            return Batch.none(_NAMES)
        time.sleep(max(0.0, wait_s))
        self._next = time.monotonic() + self._source.every_s
        files = [(path.stat().st_mtime_ns, path.name) for path in self._source.folder.glob("*.model")]
        fresh = sorted((at, name) for at, name in files if self._seen.get(name) != at)[:limit]
        self._seen |= {name: at for at, name in fresh}
        created = np.array([at for at, _ in fresh], np.int64)
        names = Text.of([name for _, name in fresh])
        return Batch({"model": names}, len(fresh), stamped(len(fresh), created))

    def close(self) -> None:
        pass
