"""Writers that gather records, so that what they write is not in too many small files."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headwater.data.batch import Batch
from headwater.errors import InputError
from headwater.flow.endpoints import Refused

_ROWS = 2**16  # gathered for a file, which a table with many small ones would be slow to read


class BufferedWriter(ABC):
    """An open table; records are there when they are enough for a file, or it is closed."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []

    @abstractmethod
    def _sift(self, batch: Batch) -> tuple[Batch, Refused]:
        """Return the records that the table can hold, and why it cannot hold the others."""

    @abstractmethod
    def flush(self) -> None:
        """Write what is gathered; what cannot be written stays to be written later."""

    def write(self, batch: Batch) -> Refused:
        """Take the records; those that the table cannot hold are refused."""
        if self._waiting() >= _ROWS:
            self.flush()
        fitting, refusals = self._sift(batch)
        self._batches.append(fitting)
        return refusals

    def close(self) -> None:
        """Write what is left; raises InputError with the number of records where that cannot be done, or not yet."""
        try:
            self.flush()
        except InputError as error:
            count = self._waiting()
            raise type(error)(f"{error}; {count:,} records are not in the table", records=count) from error

    def _waiting(self) -> int:
        return sum(map(len, self._batches))
