"""Taking back a batch that a user's operator failed at half-way, so that the records at fault can be found."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from headwater.data.batch import Batch
from headwater.flow.steps import Apply, Step
from headwater.operators.operator import Operator, Output

log = logging.getLogger(__name__)

_MOST = 4096  #: records that are kept between two snapshots: taking one back costs no more than running these again


class Undo:
    """An operator that can be brought back to before its last batch: a new one, from a snapshot and what came since.

    A snapshot before every batch would cost more than the batches where much is kept. So there is one for every few
    thousand records, and what came after it is kept: when a batch fails, a new operator takes that again.
    """

    def __init__(self, make: Callable[[], Operator], operator: Operator) -> None:
        self._make, self.operator = make, operator
        self._since: list[tuple[Batch, int] | int] = []  #: batches with their ports, and watermarks, since the snapshot
        self._records = 0
        self.keep()

    def keep(self) -> None:
        """Take a snapshot: this is what the operator can be brought back to."""
        self._snapshot = self.operator.snapshot()
        self._since, self._records = [], 0

    def process(self, batch: Batch, port: int) -> Output:
        """Run a batch; when it fails, the operator is what it was before. Raises what the operator raised."""
        try:
            out = self.operator.process(batch, port)
        except Exception:
            self._take_back()
            raise
        self._note((batch, port), batch.length)
        return out

    def advance(self, watermark: int) -> Output:
        """Move time on; that is not taken back."""
        out = self.operator.advance(watermark)
        self._note(watermark, 1)
        return out

    def _note(self, entry: tuple[Batch, int] | int, size: int) -> None:
        self._since.append(entry)
        self._records += size
        if self._records > _MOST:
            self.keep()

    def _take_back(self) -> None:
        fresh = self._make()
        if self._snapshot:
            fresh.restore(self._snapshot)
        for entry in self._since:
            if isinstance(entry, int):
                fresh.advance(entry)
            else:
                fresh.process(*entry)
        before, self.operator = self.operator, fresh
        with suppress(Exception):  # it has failed already
            before.close()


def undo_of(step: Step, operator: Operator | None) -> Undo | None:
    """Return how to take a batch back; None where the operator cannot be saved, or need not be taken back.

    Those of this package look at all records before they change anything.
    """
    if operator is None or operator.stateless or not isinstance(step.kind, Apply):
        return None
    kind = type(operator)
    if kind.__module__.partition(".")[0] == "headwater" or not kind.saves or kind.restore is Operator.restore:
        return None
    try:
        return Undo(step.kind.make, operator)
    except Exception as error:
        log.warning("step %s cannot be saved, so a record that breaks it costs its batch: %s", step.name, error)
        return None
