"""A source of batches that were made beforehand, so that making them costs the measurement nothing."""

from __future__ import annotations

from headwater.flow import Batch, Schema
from headwater.flow.endpoints import Reject


class BatchSource:
    """Hands out the same batches, as they are, each time it is opened."""

    def __init__(self, batches: list[Batch], schema: Schema) -> None:
        self._batches, self._schema = batches, schema
        self._next = iter(batches)

    @property
    def schema(self) -> Schema:
        """The columns of the batches."""
        return self._schema

    def open(self, reject: Reject) -> BatchSource:
        """Start with the first batch."""
        self._next = iter(self._batches)
        return self

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next batch, whatever its size."""
        return next(self._next, None)

    def close(self) -> None:
        """Nothing to release."""
