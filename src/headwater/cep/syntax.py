"""Queries as plain data: what the parser makes of a text, and what the printer writes back.

Every part knows where it stood in the text (`at`), for messages; two parts are equal whatever their places.
"""

# ruff: noqa: RUF009  # every part has the same last field, which `_at` describes
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Position = tuple[int, int]  #: first character and the one after the last
NOWHERE: Position = (0, 0)


def _at() -> Position:
    return field(default=NOWHERE, compare=False, repr=False)


# -- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a text or a truth value."""

    value: int | float | str | bool
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Index:
    """Which of several records that a count took: `e1[0]`, `e1[last]`, `e1[last - 1]`."""

    back: bool  #: counted from the last one
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column, perhaps of a named event: `height`, `e1.height`, `e1[last].height`."""

    name: str
    ref: str | None = None
    index: Index | None = None
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator and what it works on; `-` and `not` may have one argument."""

    op: str
    args: tuple[Value, ...]
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Function:
    """A call such as `avg(height)` or `math:abs(x)`."""

    name: str
    args: tuple[Value, ...] = ()
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value, or a whole event of an `or`, is missing."""

    value: Value
    at: Position = _at()


Value = Constant | Attribute | Operation | Function | IsNull


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time, as it was written: `1 min 30 sec`."""

    parts: tuple[tuple[int, str], ...]
    at: Position = _at()

    @property
    def us(self) -> int:
        """The length in microseconds."""
        return sum(count * UNITS_US[unit] for count, unit in self.parts)


UNITS_US = {
    "ms": 1_000,
    "sec": 1_000_000,
    "min": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}

# -- where records come from ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """`#window.length(60)`: which records are aggregated together."""

    kind: str
    args: tuple[Value | Span, ...]
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Source:
    """A stream, filtered and windowed; a join may give it another name."""

    stream: str
    filters: tuple[Value, ...] = ()
    window: Window | None = None
    alias: str | None = None
    at: Position = _at()


JoinKind = Literal["join", "left outer join", "right outer join", "full outer join"]


@dataclass(frozen=True, slots=True)
class Join:
    """Two windows whose records are paired."""

    left: Source
    right: Source
    kind: JoinKind = "join"
    on: Value | None = None
    unidirectional: Literal["", "left", "right"] = ""
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Times:
    """How often an event is taken: `<2:5>`; no upper bound is None."""

    least: int
    most: int | None
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Event:
    """One place of a pattern that takes a record, or several with `times`."""

    stream: str
    ref: str | None = None
    filters: tuple[Value, ...] = ()
    times: Times | None = None
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Absent:
    """A place of a pattern that is passed when no such record came, for a time or before another one."""

    stream: str
    filters: tuple[Value, ...] = ()
    wait: Span | None = None
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Both:
    """A place that two events must fill in any order (`and`), or one of them (`or`)."""

    op: Literal["and", "or"]
    left: Event | Absent
    right: Event | Absent
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Group:
    """Several links in parentheses, so that `every` can stand before all of them."""

    links: tuple[Link, ...]
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Link:
    """One part of a chain; with `every`, matching starts anew there each time the part is complete."""

    what: Event | Absent | Both | Group
    every: bool = False
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Chain:
    """A pattern (`->`, other records may lie between) or a sequence (`,`, none may)."""

    kind: Literal["pattern", "sequence"]
    links: tuple[Link, ...]
    within: Span | None = None
    at: Position = _at()


# -- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One column of the result: an expression and perhaps a new name."""

    value: Value
    name: str | None = None
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Query:
    """`from … select … group by … having … insert into …`; nothing selected means `*`."""

    source: Source | Join | Chain
    select: tuple[SelectItem, ...] = ()
    group_by: tuple[Attribute, ...] = ()
    having: Value | None = None
    into: str | None = None
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Define:
    """`define stream levels (tank string, height double)`."""

    stream: str
    fields: tuple[tuple[str, str], ...]
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class Partition:
    """Queries that see the records of each key apart from all others."""

    keys: tuple[tuple[str, str], ...]  #: column, stream
    queries: tuple[Query, ...]
    at: Position = _at()


@dataclass(frozen=True, slots=True)
class App:
    """Everything one text says."""

    statements: tuple[Define | Query | Partition, ...]
