"""One process at a time: a lock that is let go by whoever holds it, or by the system when that is gone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import RateError


@contextmanager
def exclusive(path: Path, otherwise: str) -> Iterator[None]:
    """Hold the lock of a file; where another process has it, raise a RateError that says so."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RateError(otherwise) from None
        yield
