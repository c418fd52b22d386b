"""What a runner asks of a step: take a batch, learn how far event time has come, save and restore state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Nullable, Text
from headwater.errors import RecordError, SnapshotError
from headwater.flow.flow import DEAD_LETTER_SCHEMA

#: What comes out: one batch for the main output, or several, each with the number of its output; None is nothing.
Output = Batch | list[tuple[int, Batch]] | None

T = TypeVar("T")

_FEW = 8  #: partitions up to which looking for the rows of each is faster than sorting all
DEAD = -1  #: the number of the output for records that broke the step


class FrozenState(NamedTuple):
    """State as it was at one moment, to be encoded later and elsewhere: nothing of it changes any more."""

    whole: bool  #: else what has changed since the operator was frozen before
    encode: Callable[[], bytes]


class Operator(ABC):
    """The running form of one instance of a step; at most one thread uses it at a time."""

    #: whether a batch that fails leaves everything as it was, so that it may be run again in parts to find what breaks it
    stateless = True
    #: whether its state comes only from inputs that go to all instances, so that any instance may take any other record
    replicable = False
    #: the numbers of the outputs for records that came too late to count
    late: tuple[int, ...] = ()
    #: whether it does something when event time moves on: a class that has `advance` does
    timed = False
    #: whether it goes by the event time of each input too: a class that has `hear` does
    hears = False
    #: whether its state can be saved: a class that has `snapshot` can do so
    saves = False
    #: says what became of the records that it took, of a sink whose writer can tell
    account: Callable[[], dict[str, Any]] | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.timed = cls.advance is not Operator.advance
        cls.hears = cls.hear is not Operator.hear
        cls.saves = cls.snapshot is not Operator.snapshot

    @abstractmethod
    def process(self, batch: Batch, port: int) -> Output:
        """Take the next records of input `port`."""

    def advance(self, watermark: int) -> Output:
        """Learn that no record older than `watermark` is expected; `END` when nothing will follow."""
        return None

    def hear(self, port: int, watermark: int) -> None:  # noqa: B027  nearly nobody asks
        """Learn how far the event time of one input has come, which may be ahead of the others."""

    def idle(self, idle: bool) -> None:  # noqa: B027  nearly nobody asks
        """Learn that nobody needs to wait for the event time of what comes here, or again: for those who pass it on."""

    def tick(self) -> Output:
        """Learn that the machine's clock has moved on; asked of those that close windows by it."""
        return None

    def snapshot(self, select: Select | None = None) -> bytes:
        """Return the state as bytes: all of it, or that of the keys that `select` chooses."""
        return b""

    def freeze(self, *, whole: bool) -> FrozenState:
        """Return the state as it is now, or what has changed since the last call where the operator can tell.

        The call holds up processing, encoding what it returns does not. Who tells what has changed has `change` too.
        """
        data = self.snapshot()
        return FrozenState(True, lambda: data)

    def change(self, data: bytes) -> None:
        """Take over what had changed since what was restored before; keys that are gone are forgotten."""
        raise SnapshotError(f"{type(self).__name__} does not save changes, but was given {len(data)} bytes of them")

    def restore(self, data: bytes) -> None:
        """Add saved state to this operator's own."""
        if data:
            raise SnapshotError(f"{type(self).__name__} keeps no state, but was given {len(data)} bytes of it")

    def forget(self, select: Select) -> None:  # noqa: B027  most operators have nothing to forget
        """Drop the state of the keys that `select` chooses: they have moved elsewhere."""

    def prepare(self, number: int) -> Callable[[], None] | None:
        """End what belongs to checkpoint `number`; called right before `snapshot`.

        What is returned, by sinks, has it safe: another thread calls it while more is processed, or nobody does where the
        checkpoint came to nothing.
        """
        return None

    def commit(self, number: int) -> None:  # noqa: B027
        """Learn that checkpoint `number` is complete: what was prepared for it may be seen."""

    def close(self) -> None:  # noqa: B027  nor to close
        """Release what was opened."""


class Select:
    """Chooses keys by their partition: those whose hash modulo `of` is `part`, or with `others` all but those.

    The hash is that of all key columns, or of those at the places `by`, in that order.
    """

    def __init__(self, part: int, of: int, by: tuple[int, ...] | None = None, *, others: bool = False) -> None:
        self.part, self.of, self.by, self._others = part, of, by, others

    def rows(self, columns: list[Array | Text]) -> Array:
        """Return which rows of these key columns are chosen."""
        key_columns = columns if self.by is None else [columns[place] for place in self.by]
        mask: Array = (partitions(key_columns, self.of) == self.part) != self._others
        return mask

    def others(self) -> Select:
        """Return what chooses all keys that this does not."""
        return Select(self.part, self.of, self.by, others=not self._others)


def partitions(columns: list[Array | Text], of: int) -> Array:
    """Return the partition of each key, the same on every machine and in every run."""
    from headwater.data.hashing import partition_hash

    hashes = partition_hash(columns)
    parts: Array = hashes & (of - 1) if of & (of - 1) == 0 else hashes % of  # a division takes as long as the hash
    return parts


def spread(batch: Batch, keys: Sequence[str], of: int) -> list[Batch | None]:
    """Cut a batch by the partitions of its keys, each in the batch's order; None for one that gets no record."""
    columns = [batch.columns[name] for name in keys]
    parts = partitions([column.values if isinstance(column, Nullable) else column for column in columns], of)
    return [batch.take(rows) if len(rows) else None for rows in _rows_by_part(parts, of)]


def _rows_by_part(parts: Array, of: int) -> list[Array]:
    if of <= _FEW:
        return [np.flatnonzero(parts == part) for part in range(of)]
    order = np.argsort(parts.astype(np.uint16) if of <= 2**16 else parts, kind="stable")  # short ones by radix
    bounds = [0, *np.cumsum(np.bincount(parts, minlength=of)).tolist()]
    return [order[start:stop] for start, stop in pairwise(bounds)]


def dead_letters(step: str, errors: list[str], batch: Batch) -> Batch:
    """Return the dead letters for records that broke a step, one error each."""
    import msgspec

    records = [_as_json(row, msgspec.json.encode) for row in batch.rows()]
    columns = {
        "step": Text.of([step] * len(records)),
        "error": Text.of(list(map(_as_unicode, errors))),
        "record": Text.of_bytes(records),
    }
    return Batch(dict(columns), len(records), batch.stamps)


def split_off_broken(error: RecordError, batch: Batch, step: str) -> tuple[Batch, Batch]:
    """Return the records that a step has an answer for, and dead letters for the others."""
    bad = np.zeros(batch.length, np.bool_)
    bad[error.rows] = True
    return batch.filter(~bad), dead_letters(step, error.reasons, batch.filter(bad))


def compute_or_reject(compute: Callable[[Batch], T], batch: Batch, step: str) -> tuple[Batch, T, Batch | None]:
    """Return the records for which `compute` has an answer, what it gave for them, and dead letters for the others.

    For steps that keep state: they compute before they change anything, since they cannot be tried again.
    """
    try:
        return batch, compute(batch), None
    except RecordError as error:
        rest, letters = split_off_broken(error, batch, step)
    # of several columns, the first that fails may hide what others say of the rest
    rest, values, more = compute_or_reject(compute, rest, step)
    return rest, values, letters if more is None else concat_batches([letters, more])


def _as_json(row: dict[str, object], encode: object) -> bytes:
    try:
        return encode(row)  # type: ignore[operator,no-any-return]
    except (TypeError, ValueError, RecursionError):  # an `any` column may hold what JSON cannot say
        return _as_unicode(repr(row)).encode()


def _as_unicode(text: str) -> str:
    """Return a text as it can be written: half a character, as in a file's name that is no UTF-8, by its number."""
    return text.encode("utf-8", "backslashreplace").decode()


def rejection_letter(step: str, text: str, error: str) -> Batch:
    """Return a dead letter for something that is not even a record."""
    columns = {"step": [step], "error": [_as_unicode(error)], "record": [_as_unicode(text)]}
    return Batch.of(columns, DEAD_LETTER_SCHEMA)
