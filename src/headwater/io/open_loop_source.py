"""Sources whose records are known by their numbers and fall due at a rate: what all of them have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from sys import maxsize

from headwater.data.schema import Schema
from headwater.flow.endpoints import Reject, Resume
from headwater.flow.ranges import RangeRequest, Ranges
from headwater.io.open_loop import OpenLoop, OpenLoopReader, RecordsFrom
from headwater.io.text_file import ignore


class OpenLoopSource(ABC):
    """Makes any records by their numbers: in the order of the clock, or ranges of them in other processes."""

    resume: Resume = "position"  # the number of the next record

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns of the records."""

    @property
    @abstractmethod
    def open_loop(self) -> OpenLoop:
        """When records are due."""

    @abstractmethod
    def numbered(self, reject: Reject) -> tuple[RecordsFrom, int]:
        """Return what hands out any records by their numbers, due or not, and how many there can be.

        It is asked for once in each process that reads, and may load or make records beforehand.
        """

    @property
    def most(self) -> int | None:
        """How many records there can be, where that is known without `numbered`."""
        return maxsize

    def open(self, reject: Reject, position: int | None = None) -> OpenLoopReader:
        """Start handing out records, or go on after the first `position` of them; what it rejects goes with the first."""
        take, most = self.numbered(ignore if position else reject)
        return OpenLoopReader(take, self.schema, self.open_loop, position, most)

    def ranges(self, request: RangeRequest) -> Ranges | None:
        """Return the records in ranges of their numbers."""
        from headwater.io.ranges.numbers import NumberRanges

        return NumberRanges(self, request)
