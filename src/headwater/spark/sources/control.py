"""What the driver and the process that plans a source's micro-batches tell each other: files, since they share no more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

_PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class EndRequest:
    """What the driver wants: to pause for a later run, or to end; records that were due by a moment still count."""

    pause: bool = False
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class SourceControl:
    """What is said about one source, in a folder."""

    folder: Path

    def clear(self) -> None:
        """Take back all that was said."""
        for path in (self._end, self._begin_mark):
            path.unlink(missing_ok=True)

    def finish(self, until_ns: int | None = None) -> None:
        """Tell the planner to end the source: now, or with what was due by a moment of the wall clock."""
        _write(self._end, "" if until_ns is None else str(until_ns))

    def pause(self) -> None:
        """Tell the planner to read no more, and not to say that it is the end."""
        _write(self._end, _PAUSE)

    def begin(self) -> None:
        """Tell the driver that reading begins."""
        _write(self._begin_mark, str(time.time_ns()))

    def request(self) -> EndRequest | None:
        """Return what the driver has told; None if nothing yet."""
        text = _read(self._end)
        if text is None:
            return None
        return EndRequest(pause=True) if text == _PAUSE else EndRequest(until_ns=int(text) if text else None)

    def begun_ns(self) -> int | None:
        """Return when reading began; None if it has not."""
        text = _read(self._begin_mark)
        return None if text is None else int(text)

    @property
    def _end(self) -> Path:
        return self.folder / "end"

    @property
    def _begin_mark(self) -> Path:
        return self.folder / "begun"


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)  # never there and not yet whole


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
