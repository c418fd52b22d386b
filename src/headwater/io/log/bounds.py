"""How much a log may hold, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from headwater.clock import BUILT_NS
from headwater.errors import InputError
from headwater.io.log.entry import GAP, Entry, first_of, gap

IsNeeded = Callable[[int], bool]  #: tells whether somebody has still to take the entry at a position
WhenFull = Literal["hold", "drop oldest", "drop lowest"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A log's bounds. At that of bytes it holds what is new off, or drops the oldest entries, or those of least priority.

    What grows older than `age_s` is dropped in any case, a segment at a time.
    """

    nbytes: int | None = None
    age_s: float | None = None
    full: WhenFull = "hold"

    def __post_init__(self) -> None:
        if self.nbytes is not None and self.nbytes < 0:
            raise InputError(f"a log holds 0 or more bytes; got {self.nbytes!r}")
        if self.age_s is not None and not self.age_s > 0:
            raise InputError(f"the age of a log's entries is bounded above 0 s; got {self.age_s!r}")
        if self.full not in ("hold", "drop oldest", "drop lowest"):
            raise InputError(f"a full log can 'hold', 'drop oldest' or 'drop lowest'; got {self.full!r}")

    def is_too_old(self, created_ns: int, now_ns: int, opened_ns: int) -> bool:
        """Tell whether an entry is too old, in a log that was opened at a moment.

        One that was made before its machine's clock was set does not say how old it is: it counts as made when the log was
        opened.
        """
        made_ns = created_ns if created_ns >= BUILT_NS else max(created_ns, opened_ns)
        return self.age_s is not None and now_ns - made_ns > self.age_s * 1e9


def thin(entries: Iterable[Entry], priority: int, is_needed: IsNeeded) -> tuple[list[Entry], int]:
    """Return entries without those of a priority, and how many records that leaves out.

    Where some were, an entry stands that says so. Those that nobody needs go too, and are not counted.
    """
    remaining: list[Entry] = []
    dropped = 0
    for entry in entries:
        if entry.priority != GAP and entry.priority > priority and is_needed(entry.position):
            remaining.append(entry)
            continue
        if entry.priority != GAP and is_needed(entry.position):
            dropped += entry.records
        start, records = first_of(entry), entry.records
        if remaining and remaining[-1].priority == GAP:
            before = remaining.pop()
            start, records = first_of(before), records + before.records
        remaining.append(gap(start, entry.position + 1, records, entry.created_ns))
    return remaining, dropped
