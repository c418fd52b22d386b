"""One tree of errors; a message says which thing, what was expected, what came and, when known, the likely slip.

HeadwaterError
├── FlowError         a flow, expression or schema is described wrongly; raised while building
├── QueryError        a query text is wrong; carries line, column and the offending text
├── NetError          a net, device or link is described wrongly
├── PlacementError    a placement problem is contradictory or impossible
├── RateError         a rate contract cannot be admitted or was broken
├── ModelError        a trained model is missing, corrupt or made for other columns
├── InputError        a source or sink cannot be opened, read or written
│   ├── PathError     its path is that of nothing, or of a folder in place of a file
│   ├── NoRoomError   for want of room on a disk, which there may be later
│   └── GoneError     nobody will ever read what is written there
├── RecordError       some records of a batch have no answer in a step; carries which ones and why
├── SnapshotError     saved state does not fit the step that should take it
└── RunError          a run cannot start or go on; carries the step and, once started, the report
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class HeadwaterError(Exception):
    """The root of everything Headwater raises on purpose."""


class FlowError(HeadwaterError):
    """A flow, expression or schema is described wrongly."""


class QueryError(HeadwaterError):
    """A query text is wrong."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0, offending: str = "") -> None:
        super().__init__(message)
        self.line, self.column, self.offending = line, column, offending


class NetError(HeadwaterError):
    """A net, device or link is described wrongly."""


class PlacementError(HeadwaterError):
    """A placement problem is contradictory or impossible."""


class RateError(HeadwaterError):
    """A rate contract cannot be admitted or was broken."""


class ModelError(HeadwaterError):
    """A trained model is missing, corrupt or made for other columns."""


class InputError(HeadwaterError):
    """A source or sink cannot be opened, read or written."""

    def __init__(self, message: str, *, records: int = 0) -> None:
        super().__init__(message)
        self.records = records  #: how many that a sink had taken are lost with it


class PathError(InputError):
    """What a path names is not there, or is a folder in place of a file."""


class NoRoomError(InputError):
    """There is no room on a disk for what is to be written, and may be some later: a sink that raises it is tried again."""


#: how a GoneError ends where who has read enough has closed a pipe: nobody's fault
UNREAD = "nobody reads standard output any more"


class GoneError(InputError):
    """Nobody will ever read what is written there, as behind a pipe that was closed: a sink that raises it ends the run."""


class RecordError(HeadwaterError):
    """Some records of a batch have no answer in a step: `rows` are their places, in order, with a reason each."""

    def __init__(self, rows: Sequence[int], reasons: Sequence[str]) -> None:
        super().__init__(reasons[0])
        self.rows, self.reasons = list(rows), list(reasons)


class SnapshotError(HeadwaterError):
    """Saved state does not fit the step that should take it."""


class RunError(HeadwaterError):
    """A run cannot start or go on; `report` is what it had done by then, a `metrics.Report`, if it had started."""

    def __init__(self, message: str, *, step: str | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.report: Any = None


def exit_code_of(error: HeadwaterError) -> int:
    """Return what a command ends with: 2 for bad usage, such as a path of nothing; 1 where it ran, and then failed.

    A service waits for a file that is not there yet, and does not take its flow for described wrongly.
    """
    return 2 if is_described_wrongly(error) or isinstance(error, PathError) else 1


def is_described_wrongly(error: HeadwaterError) -> bool:
    """Say whether what is written down is wrong, so that starting again does not help; else it ran, and then failed."""
    if isinstance(error, RunError):
        return error.step is None and error.report is None
    return isinstance(error, FlowError | QueryError | NetError | PlacementError)


def listed(names: Iterable[str]) -> str:
    """Write names for a message.

    >>> listed(["b", "a"])
    "'a', 'b'"
    """
    return ", ".join(repr(name) for name in sorted(names)) or "none"


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """Return '; did you mean …?' when a known name is close to the wrong one, else nothing.

    >>> suggestion("bacth", ["batch", "rate"])
    "; did you mean 'batch'?"
    """
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def one_line(text: str) -> str:
    r"""Return a text from outside as it may be printed: on one line, and with nothing that a terminal would obey.

    >>> one_line("bad\n\x1b[31mred")
    'bad\\n\\x1b[31mred'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
