"""Queries in Python: functions and `col` expressions that make the same plain data as the text.

>>> from headwater.flow.expr import col
>>> from headwater.cep import text
>>> e1, e2 = event("e1", "levels"), event("e2", "levels")
>>> print(text(pattern(every(e1), e2[col.height > e1.height], within="1 min").select(tank=e1.tank)))
from every e1=levels -> e2=levels[height > e1.height] within 1 min
select e1.tank as tank
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from headwater.cep import syntax as s
from headwater.cep.formulas import Reference, value_of
from headwater.cep.parse import span_of
from headwater.cep.printer import query_text
from headwater.errors import QueryError
from headwater.flow.expr import Column, Expr

Duration = str | timedelta  #: "1 min 30 sec", "500 ms"


class _Record(ABC):
    """Something whose columns are read by name: `e1.height`, or `e1["height"]` for names that are taken."""

    __slots__ = ()

    @abstractmethod
    def _column(self, name: str) -> Reference:
        """Return a reference to one of its columns."""

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._column(name)


@dataclass(frozen=True, slots=True)
class TakenRecord(_Record):
    """One of the records that a counted event took: `e1[0].height`, `e1[-1].height`."""

    _ref: str
    _index: s.Index

    def __getitem__(self, name: str) -> Reference:
        return self._column(name)

    def _column(self, name: str) -> Reference:
        return Reference(self._ref, name, self._index)


@dataclass(frozen=True, slots=True)
class Event(_Record):
    """An event of a pattern; `e1[condition]` must hold, `e1.height` and `e1[-1].height` are columns of what it took."""

    _data: s.Event

    def __getitem__(self, key: Expr | int | str) -> Any:
        if isinstance(key, Expr):
            return Event(replace(self._data, filters=(*self._data.filters, value_of(key))))
        if isinstance(key, str):
            return self._column(key)
        return TakenRecord(self._name(), s.Index(key < 0, -1 - key if key < 0 else key))

    def _column(self, name: str) -> Reference:
        return Reference(self._name(), name)

    def _name(self) -> str:
        if self._data.ref is None:
            raise QueryError(f"this event of {self._data.stream!r} has no name; make it by event(name, stream)")
        return self._data.ref


@dataclass(frozen=True, slots=True)
class QueryStream(_Record):
    """A stream by name, perhaps filtered, windowed, or with another name in a join."""

    _data: s.Source

    def __getitem__(self, key: Expr | str) -> Any:
        if isinstance(key, Expr):
            return QueryStream(replace(self._data, filters=(*self._data.filters, value_of(key))))
        return self._column(key)

    def _column(self, name: str) -> Reference:
        return Reference(self._data.alias or self._data.stream, name)

    def window(self, kind: str, *args: Any) -> QueryStream:
        """Aggregate or join over a window: `window("time", "1 min")`, `window("length", 60)`; a text is a duration."""
        parameters = tuple(_span(arg) if isinstance(arg, Duration) else value_of(arg) for arg in args)
        return QueryStream(replace(self._data, window=s.Window(kind, parameters)))

    def named(self, alias: str) -> QueryStream:
        """Give one side of a join its name."""
        return QueryStream(replace(self._data, alias=alias))

    def select(self, *values: Any, **named: Any) -> Result:
        """Choose the columns of the result; nothing means all of them."""
        return _result_of(self._data, values, named)


@dataclass(frozen=True, slots=True)
class Selectable:
    """Two windows that are joined, a pattern or a sequence: something to select from."""

    data: s.Join | s.Chain

    def select(self, *values: Any, **named: Any) -> Result:
        """Choose the columns of the result; nothing means all of them."""
        return _result_of(self.data, values, named)


@dataclass(frozen=True, slots=True)
class LinkedPart:
    """A part of a pattern with `every` before it, or several that stand together."""

    data: s.Link


@dataclass(frozen=True, slots=True)
class UnnamedPart:
    """A part of a pattern that is no single event: an absence, or two events joined by `and` or `or`."""

    data: s.Absent | s.Both


@dataclass(frozen=True, slots=True)
class Result:
    """A whole query; `flow.query` takes it as it takes text."""

    data: s.Query

    def group_by(self, *columns: Expr) -> Result:
        """Aggregate the records of each group apart."""
        attributes = tuple(map(value_of, columns))
        for column in attributes:
            if not isinstance(column, s.Attribute):
                raise QueryError(f"group_by() takes columns, such as col.tank; got {column}")
        return Result(replace(self.data, group_by=attributes))  # type: ignore[arg-type]

    def having(self, condition: Expr) -> Result:
        """Keep results of which this holds; it reads the result's own columns."""
        return Result(replace(self.data, having=value_of(condition)))

    def into(self, name: str) -> Result:
        """Name the result, so that later queries can read it."""
        return Result(replace(self.data, into=name))


# -- where records come from ------------------------------------------------------------------------------------------


def stream(name: str) -> QueryStream:
    """Read a stream by its name."""
    return QueryStream(s.Source(name))


def event(name: str | None, of: str | QueryStream) -> Event:
    """Name an event of a pattern, which takes a record of a stream; None when nobody reads it."""
    if isinstance(of, QueryStream):
        if of._data.window is not None or of._data.alias is not None:
            raise QueryError("a window cannot stand in a pattern; put it in a query of its own")
        return Event(s.Event(of._data.stream, name, of._data.filters))
    return Event(s.Event(of, name))


def join(
    left: QueryStream,
    right: QueryStream,
    on: Expr | None = None,
    *,
    kind: Literal["inner", "left", "right", "full"] = "inner",
    unidirectional: Literal["", "left", "right"] = "",
) -> Selectable:
    """Pair the records of two windows; `unidirectional` names the side whose records alone give results."""
    word: Any = "join" if kind == "inner" else f"{kind} outer join"
    return Selectable(s.Join(left._data, right._data, word, None if on is None else value_of(on), unidirectional))


# -- patterns ---------------------------------------------------------------------------------------------------------

Part = Event | UnnamedPart | LinkedPart  #: of a pattern


def pattern(*parts: Part, within: Duration | None = None) -> Selectable:
    """Match parts one after the other; other records may lie between (`->`)."""
    return Selectable(s.Chain("pattern", tuple(map(_link, parts)), None if within is None else _span(within)))


def sequence(*parts: Part, within: Duration | None = None) -> Selectable:
    """Match parts one after the other, without a gap (`,`)."""
    return Selectable(s.Chain("sequence", tuple(map(_link, parts)), None if within is None else _span(within)))


def every(*parts: Part) -> LinkedPart:
    """Start anew with each record that the event takes, or each time that all of several parts were passed."""
    return LinkedPart(replace(_link(parts[0] if len(parts) == 1 else group(*parts)), every=True))


def group(*parts: Part) -> LinkedPart:
    """Put parts into parentheses."""
    return LinkedPart(s.Link(s.Group(tuple(map(_link, parts)))))


def times(of: Event, least: int, most: int | None) -> Event:
    """Take several records: `times(e1, 2, 5)`; None for no upper bound."""
    if least < 0 or (most is not None and most < max(least, 1)):
        raise QueryError(f"an event is taken {least} to {most} times; expected numbers from 0 up, the smaller first")
    return Event(replace(of._data, times=s.Times(least, most)))


def absent(what: QueryStream, wait: Duration | None = None) -> UnnamedPart:
    """Be passed when no such record comes for a time; without one, before the event that it is joined to by `both`."""
    return UnnamedPart(s.Absent(what._data.stream, what._data.filters, None if wait is None else _span(wait)))


def both(left: Event | UnnamedPart, right: Event | UnnamedPart) -> UnnamedPart:
    """Take two events in any order (`and`)."""
    return UnnamedPart(s.Both("and", _side(left), _side(right)))


def either(left: Event | UnnamedPart, right: Event | UnnamedPart) -> UnnamedPart:
    """Take one of two events (`or`)."""
    return UnnamedPart(s.Both("or", _side(left), _side(right)))


def missing(of: Event) -> Expr:
    """Say whether an event of an `either` did not come."""
    return Column(of._name()).is_null()


# -- statements -------------------------------------------------------------------------------------------------------


def define(name: str, **columns: str) -> s.Define:
    """Check the columns of a stream: `define("levels", tank="string", height="int")`."""
    return s.Define(name, tuple(columns.items()))


def partition(keys: Mapping[str, str], *queries: Result) -> s.Partition:
    """Ask queries of each key apart; `keys` says which column of which stream it is: `{"levels": "tank"}`."""
    return s.Partition(tuple((column, of) for of, column in keys.items()), tuple(query.data for query in queries))


def renamed(value: Any, name: str) -> s.SelectItem:
    """Name a column of the result; the same as `select(name=value)`, where order matters."""
    return s.SelectItem(value_of(value), name)


Statement = Result | s.Query | s.Define | s.Partition


def app(*statements: Statement) -> s.App:
    """Put statements together; later ones read what earlier ones insert."""
    return s.App(tuple(part.data if isinstance(part, Result) else part for part in statements))


def text(query: Statement | s.App) -> str:
    """Write a query, or several, as SiddhiQL."""
    return query_text(query.data if isinstance(query, Result) else query)


# -- how parts become data --------------------------------------------------------------------------------------------


def _result_of(source: Any, values: tuple[Any, ...], named: dict[str, Any]) -> Result:
    items = [value if isinstance(value, s.SelectItem) else s.SelectItem(value_of(value)) for value in values]
    return Result(s.Query(source, (*items, *(renamed(value, name) for name, value in named.items()))))


def _link(part: Part) -> s.Link:
    match part:
        case LinkedPart(data):
            return data
        case Event(data) | UnnamedPart(data):
            return s.Link(data)
    raise QueryError(f"a pattern is made of events, such as event('e1', 'levels'); got {part!r}")


def _side(part: Event | UnnamedPart) -> s.Event | s.Absent:
    data = part._data if isinstance(part, Event) else part.data
    if isinstance(data, s.Both):
        raise QueryError("both() and either() join two events; three do not fit")
    return data


def _span(length: Duration) -> s.Span:
    if isinstance(length, str):
        return span_of(length)
    ms, rest = divmod(length, timedelta(milliseconds=1))
    if rest or ms < 0:
        raise QueryError(f"a duration is a number of milliseconds; got {length}")
    return s.Span(((ms, "ms"),))
