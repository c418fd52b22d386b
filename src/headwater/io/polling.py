"""Tables that are looked at every so often for what was added to them."""

from __future__ import annotations

import time
from typing import Protocol

from headwater.data.batch import Batch
from headwater.data.schema import Schema


class Polled(Protocol):
    """A table that may be followed."""

    follow: bool
    poll_s: float  #: between two looks

    @property
    def schema(self) -> Schema:
        """The columns of its records."""


def nothing_new(source: Polled, timeout_s: float) -> Batch | None:
    """Wait before the next look at a table that is followed, and return no record; None where it is read to its end."""
    if not source.follow:
        return None
    time.sleep(min(timeout_s, source.poll_s))
    return Batch.none(source.schema)
