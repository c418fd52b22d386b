"""From the text of a query to plain data."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from math import isinf
from sys import float_info
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError
from lark.tree import Meta
from lark.visitors import v_args

from headwater.cep import syntax as s
from headwater.cep.diagnostics import error_at, syntax_error
from headwater.errors import QueryError, suggestion

_UNITS = {
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds", "millisec"), "ms"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "sec"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hour", "hours"), "hour"),
    **dict.fromkeys(("d", "day", "days"), "day"),
    **dict.fromkeys(("week", "weeks"), "week"),
}

TOO_DEEP = "the query is nested too deeply, or has too many terms in a row, to be read; split it into several"


def parse(text: str) -> s.App:
    """Read statements separated by semicolons, or say where and why the text is none.

    >>> parse("from levels[height < 150] select height").statements[0].source.stream
    'levels'
    """
    try:
        tree = _grammar().parse(text)
    except UnexpectedInput as error:
        raise syntax_error(text, error) from None
    try:
        app: s.App = _Reader(text).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, QueryError):
            raise error.orig_exc from None
        raise
    except RecursionError:
        raise QueryError(TOO_DEEP) from None
    return app


def span_of(text: str) -> s.Span:
    """Read a length of time alone.

    >>> span_of("1 min 30 sec").us
    90000000
    """
    parts = re.findall(r"\s*(\d+)\s*([A-Za-z]+)", text)
    if not parts or re.sub(r"\s*\d+\s*[A-Za-z]+\s*", "", text):
        raise QueryError(f"a length of time is a number and a unit, such as '10 sec' or '1 min 30 sec'; got {text!r}")
    for _, unit in parts:
        if unit.lower() not in _UNITS:
            raise QueryError(f"in {text!r}, {_no_unit(unit)}")
    return s.Span(tuple((int(count), _UNITS[unit.lower()]) for count, unit in parts))


def _no_unit(unit: str) -> str:
    near = suggestion(unit, _UNITS) or "; units are ms, sec, min, hour, day, week"
    return f"{str(unit)!r} is no unit of time{near}"


@cache
def _grammar() -> Lark:
    grammar = files("headwater.cep").joinpath("grammar.lark").read_text()
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _position(meta: Meta) -> s.Position:
    return (meta.start_pos, meta.end_pos)


def _token_position(token: Token) -> s.Position:
    return (token.start_pos or 0, token.end_pos or 0)


@v_args(meta=True)
class _Reader(Transformer[Token, Any]):
    """Turns lark's tree into syntax, bottom up: each method is a rule of the grammar."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._sequences: list[s.Group] = []  #: groups whose links are joined by ','

    def start(self, meta: Meta, items: list[Any]) -> s.App:
        return s.App(tuple(items))

    def define(self, meta: Meta, items: list[Any]) -> s.Define:
        return s.Define(str(items[0]), tuple(items[1:]), _token_position(items[0]))

    def field(self, meta: Meta, items: list[Any]) -> tuple[str, str]:
        return str(items[0]), str(items[1])

    def partition(self, meta: Meta, items: list[Any]) -> s.Partition:
        keys = tuple(item for item in items if isinstance(item, tuple))
        return s.Partition(keys, tuple(item for item in items if isinstance(item, s.Query)), _position(meta))

    def key(self, meta: Meta, items: list[Any]) -> tuple[str, str]:
        return str(items[0]), str(items[1])

    # -- queries ------------------------------------------------------------------------------------------------------

    def query(self, meta: Meta, items: list[Any]) -> s.Query:
        rest = dict(items[1:])
        source = items[0]
        return s.Query(
            source, rest["select"], rest.get("group", ()), rest.get("having"), rest.get("into"), _position(meta)
        )

    def all(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return "select", ()

    def select(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return "select", tuple(items)

    def selected(self, meta: Meta, items: list[Any]) -> s.SelectItem:
        return s.SelectItem(items[0], str(items[1]) if len(items) > 1 else None, _position(meta))

    def group_by(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return "group", tuple(items)

    def having(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return "having", items[0]

    def insert(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return "into", str(items[0])

    # -- chains -------------------------------------------------------------------------------------------------------

    def alone(self, meta: Meta, items: list[Any]) -> s.Source | s.Chain:
        link = items[0]
        event = link.what[0] if isinstance(link.what, tuple) else link.what
        if not link.every and isinstance(event, s.Event) and event.ref is None and event.times is None:
            if len(items) > 1:
                raise error_at(self._text, items[1].at, "'within' belongs to a pattern; a window has its own length")
            window = link.what[1] if isinstance(link.what, tuple) else None
            return s.Source(event.stream, event.filters, window, None, event.at)
        sequence = any(link.what is group for group in self._sequences)
        return self._chain("sequence" if sequence else "pattern", meta, items)

    def pattern(self, meta: Meta, items: list[Any]) -> s.Chain:
        return self._chain("pattern", meta, items)

    def sequence(self, meta: Meta, items: list[Any]) -> s.Chain:
        return self._chain("sequence", meta, items)

    def _chain(self, kind: Any, meta: Meta, items: list[Any]) -> s.Chain:
        within = items.pop() if isinstance(items[-1], s.Span) else None
        return s.Chain(kind, tuple(self._windowless(link) for link in items), within, _position(meta))

    def _windowless(self, link: s.Link) -> s.Link:
        what: Any = link.what  # while reading, an event may stand there with its window
        if not isinstance(what, tuple):
            return link
        event, window = what
        raise error_at(
            self._text,
            window.at,
            f"a window cannot stand in a pattern; put it in a query of its own that reads {event.stream!r}",
        )

    def within(self, meta: Meta, items: list[Any]) -> s.Span:
        return items[0]  # type: ignore[no-any-return]

    def every(self, meta: Meta, items: list[Any]) -> bool:
        return True

    def link(self, meta: Meta, items: list[Any]) -> s.Link:
        return s.Link(items[-1], len(items) > 1, _position(meta))

    def pattern_group(self, meta: Meta, items: list[Any]) -> s.Group:
        return s.Group(tuple(self._windowless(link) for link in items), _position(meta))

    def sequence_group(self, meta: Meta, items: list[Any]) -> s.Group:
        group = self.pattern_group(meta, items)
        self._sequences.append(group)
        return group

    def both(self, meta: Meta, items: list[Any]) -> s.Both:
        left, op, right = (self._windowless(s.Link(i)).what if not isinstance(i, Token) else i for i in items)
        return s.Both(op=str(op), left=left, right=right, at=_position(meta))  # type: ignore[arg-type]

    def absent(self, meta: Meta, items: list[Any]) -> s.Absent:
        wait = items.pop() if isinstance(items[-1], s.Span) else None
        return s.Absent(str(items[0]), tuple(items[1:]), wait, _position(meta))

    def wait(self, meta: Meta, items: list[Any]) -> s.Span:
        return items[0]  # type: ignore[no-any-return]

    def event(self, meta: Meta, items: list[Any]) -> s.Event | tuple[s.Event, s.Window]:
        names = [item for item in items if isinstance(item, Token)]
        window = next((item for item in items if isinstance(item, s.Window)), None)
        times = next((item for item in items if isinstance(item, s.Times)), None)
        filters = tuple(i for i in items if not isinstance(i, Token | s.Window | s.Times))
        ref = str(names[0]) if len(names) > 1 else None
        event = s.Event(str(names[-1]), ref, filters, times, _token_position(names[-1]))
        if window is not None and (ref or times):
            raise error_at(self._text, window.at, "a window cannot stand in a pattern; put it in a query of its own")
        return event if window is None else (event, window)

    def filter(self, meta: Meta, items: list[Any]) -> s.Value:
        return items[0]  # type: ignore[no-any-return]

    def window(self, meta: Meta, items: list[Any]) -> s.Window:
        return s.Window(str(items[0]), tuple(items[1:]), _position(meta))

    def between(self, meta: Meta, items: list[Any]) -> s.Times:
        return self._times(meta, _whole(items[0]), _whole(items[1]))

    def at_least(self, meta: Meta, items: list[Any]) -> s.Times:
        return self._times(meta, _whole(items[0]), None)

    def at_most(self, meta: Meta, items: list[Any]) -> s.Times:
        return self._times(meta, 0, _whole(items[0]))

    def exactly(self, meta: Meta, items: list[Any]) -> s.Times:
        return self._times(meta, _whole(items[0]), _whole(items[0]))

    def some(self, meta: Meta, items: list[Any]) -> s.Times:
        return s.Times(1, None, _position(meta))

    def any(self, meta: Meta, items: list[Any]) -> s.Times:
        return s.Times(0, None, _position(meta))

    def maybe(self, meta: Meta, items: list[Any]) -> s.Times:
        return s.Times(0, 1, _position(meta))

    def _times(self, meta: Meta, least: int, most: int | None) -> s.Times:
        if most is not None and (most < least or most == 0):
            wrong = f"a count takes at least {least} and at most {most} records"
            fix = f"did you mean <{most}:{least}>?" if most else "the upper bound must be above 0"
            raise error_at(self._text, _position(meta), f"{wrong}; {fix}")
        return s.Times(least, most, _position(meta))

    # -- joins --------------------------------------------------------------------------------------------------------

    def join(self, meta: Meta, items: list[Any]) -> s.Join:
        sides = [item for item in items if isinstance(item, s.Source)]
        kind = next(item for item in items if isinstance(item, str))
        at = items.index(kind)
        one_way = next((i for i, item in enumerate(items) if item is None), None)
        direction = "" if one_way is None else "left" if one_way < at else "right"
        on = next((item[1] for item in items if isinstance(item, tuple)), None)
        return s.Join(sides[0], sides[1], kind, on, direction, _position(meta))  # type: ignore[arg-type]

    def side(self, meta: Meta, items: list[Any]) -> s.Source:
        event, window = items[0] if isinstance(items[0], tuple) else (items[0], None)
        if event.ref or event.times:
            raise error_at(self._text, event.at, "a join reads streams; name them with 'as', such as 'levels as l'")
        alias = str(items[1]) if len(items) > 1 else None
        return s.Source(event.stream, event.filters, window, alias, event.at)

    def inner(self, meta: Meta, items: list[Any]) -> str:
        return "join"

    def left_outer(self, meta: Meta, items: list[Any]) -> str:
        return "left outer join"

    def right_outer(self, meta: Meta, items: list[Any]) -> str:
        return "right outer join"

    def full_outer(self, meta: Meta, items: list[Any]) -> str:
        return "full outer join"

    def one_way(self, meta: Meta, items: list[Any]) -> None:
        return None

    def on(self, meta: Meta, items: list[Any]) -> tuple[str, s.Value]:
        return "on", items[0]

    # -- values -------------------------------------------------------------------------------------------------------

    def span(self, meta: Meta, items: list[Any]) -> s.Span:
        parts = []
        for count, unit in zip(items[::2], items[1::2], strict=True):
            if unit.lower() not in _UNITS:
                raise error_at(self._text, _token_position(unit), _no_unit(unit))
            parts.append((_whole(count), _UNITS[unit.lower()]))
        return s.Span(tuple(parts), _position(meta))

    def unitless(self, meta: Meta, items: list[Any]) -> s.Span:
        raise error_at(self._text, _token_position(items[0]), f"a time needs a unit; did you mean '{items[0]} sec'?")

    def either(self, meta: Meta, items: list[Any]) -> s.Operation:
        return s.Operation("or", tuple(items), _position(meta))

    def both_values(self, meta: Meta, items: list[Any]) -> s.Operation:
        return s.Operation("and", tuple(items), _position(meta))

    def negated(self, meta: Meta, items: list[Any]) -> s.Operation:
        return s.Operation("not", tuple(items), _position(meta))

    def compared(self, meta: Meta, items: list[Any]) -> s.Operation:
        return s.Operation(str(items[1]), (items[0], items[2]), _position(meta))

    calculated = compared

    def minus(self, meta: Meta, items: list[Any]) -> s.Operation | s.Constant:
        only = items[0]
        if isinstance(only, s.Constant) and type(only.value) in (int, float):
            between = self._text[meta.start_pos + 1 : only.at[0]]
            if not between.strip():  # -(1) stays an operation, -1 is a number
                return s.Constant(-only.value, _position(meta))  # type: ignore[operator]
        return s.Operation("-", (only,), _position(meta))

    def is_null(self, meta: Meta, items: list[Any]) -> s.IsNull:
        return s.IsNull(items[0], _position(meta))

    def whole(self, meta: Meta, items: list[Any]) -> s.Constant:
        return s.Constant(_whole(items[0]), _position(meta))

    def real(self, meta: Meta, items: list[Any]) -> s.Constant:
        number = float(items[0].rstrip("dDfF"))
        if isinf(number):
            most = f"{float_info.max:.4g}"
            raise error_at(self._text, _position(meta), f"{items[0]} is too large for a float, which ends at {most}")
        return s.Constant(number, _position(meta))

    def text(self, meta: Meta, items: list[Any]) -> s.Constant:
        return s.Constant(str(items[0][1:-1]), _position(meta))

    def true(self, meta: Meta, items: list[Any]) -> s.Constant:
        return s.Constant(True, _position(meta))

    def false(self, meta: Meta, items: list[Any]) -> s.Constant:
        return s.Constant(False, _position(meta))

    def function(self, meta: Meta, items: list[Any]) -> s.Function:
        names = [str(item) for item in items if isinstance(item, Token)]
        return s.Function(":".join(names), tuple(items[len(names) :]), _position(meta))

    def plain(self, meta: Meta, items: list[Any]) -> s.Attribute:
        return s.Attribute(str(items[0]), at=_position(meta))

    def of_event(self, meta: Meta, items: list[Any]) -> s.Attribute:
        return s.Attribute(str(items[1]), str(items[0]), at=_position(meta))

    def of_indexed(self, meta: Meta, items: list[Any]) -> s.Attribute:
        return s.Attribute(str(items[2]), str(items[0]), items[1], _position(meta))

    def from_first(self, meta: Meta, items: list[Any]) -> s.Index:
        return s.Index(False, _whole(items[0]))

    def from_last(self, meta: Meta, items: list[Any]) -> s.Index:
        return s.Index(True, 0)

    def before_last(self, meta: Meta, items: list[Any]) -> s.Index:
        return s.Index(True, _whole(items[0]))


def _whole(token: Token) -> int:
    return int(str(token).rstrip("lL"))
