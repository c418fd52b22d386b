"""State by key as arrays: the form in which vectorised keyed steps are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.data.batch import Batch
from headwater.data.column import Array, Column


@dataclass(frozen=True, slots=True)
class Cell:
    """What a scan keeps per key: one number or a small array of them, all starting at `initial`."""

    dtype: str
    initial: float = 0
    shape: tuple[int, ...] = ()


class Scan(Protocol):
    """A keyed step that works on whole batches.

    The runner keeps one array per cell with a slot per key, hands out slots, grows the arrays, and snapshots and restores
    them whole or by key; the scan itself holds no state that changes. One that says in an attribute `makes` which columns
    its results have lets runners know that all others, its keys among them, stay what they were; on Spark records of a
    key then need not move again. One that also says in `reads` which columns it looks at, its keys apart, has an answer
    for every record that has values there; lanes then carry no others to it than these and those that later steps use.
    """

    @property
    def state(self) -> Mapping[str, Cell]:
        """The cells that each key has."""

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Update the state with the batch's records in order, and return result columns.

        `slots[i]` is the slot of record i's key. Return columns as long as the batch, or a pair (rows, columns) when
        only some records, by row number, give a result.
        """


def makes_of(scan: Scan) -> frozenset[str] | None:
    """Return the columns that a scan computes; None where it does not say."""
    makes = getattr(scan, "makes", None)
    return None if makes is None else frozenset(makes)


def reads_of(scan: Scan) -> frozenset[str] | None:
    """Return the columns that a scan looks at, its keys apart; None where it does not say."""
    reads = getattr(scan, "reads", None)
    return None if reads is None else frozenset(reads)


Rows = dict[str, Column] | tuple[Any, dict[str, Column]]
