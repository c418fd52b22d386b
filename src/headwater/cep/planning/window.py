"""`#window.…(…)`: which kind of window it is, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.cep import syntax as s
from headwater.cep.automaton import column_type
from headwater.cep.diagnostics import error_at
from headwater.data.schema import Schema
from headwater.errors import suggestion

#: name → what it is called in a message when its arguments are wrong
_FORMS = {
    "length": "length(60)",
    "lengthBatch": "lengthBatch(60)",
    "time": "time(1 min)",
    "timeBatch": "timeBatch(1 min)",
    "externalTime": "externalTime(ts, 1 min)",
    "externalTimeBatch": "externalTimeBatch(ts, 1 min)",
    "session": "session(1 min) or session(1 min, key)",
}


@dataclass(frozen=True)
class Extent:
    """A window's kind and size, in records or microseconds; `time` is the column it goes by, if it names one."""

    kind: Literal["length", "time", "session"]
    size: int
    batch: bool = False
    time: str | None = None
    key: str | None = None


def extent(text: str, window: s.Window, stream: str, schema: Schema) -> Extent:
    """Return what a window says, or complain."""
    if window.kind not in _FORMS:
        near = suggestion(window.kind, _FORMS) or f"; windows are {', '.join(_FORMS)}"
        raise error_at(text, window.at, f"there is no window {window.kind!r}{near}")
    args = list(window.args)
    time = key = None
    if window.kind.startswith("externalTime"):
        time = _column(text, window, args.pop(0) if args else None, stream, schema, types=("time", "int"))
    if window.kind == "session" and len(args) == 2:
        key = _column(text, window, args.pop(), stream, schema, types=None)
    if len(args) != 1:
        raise _form(text, window, f"got {len(window.args)} argument{'s' if len(window.args) != 1 else ''}")
    if window.kind.startswith("length"):
        return Extent("length", _records(text, window, args[0]), window.kind.endswith("Batch"))
    if not isinstance(args[0], s.Span):
        fix = f"; did you mean {args[0].value} sec?" if isinstance(args[0], s.Constant) else ""
        raise error_at(text, args[0].at, f"a window of time needs a unit, such as {_FORMS[window.kind]}{fix}")
    if args[0].us == 0:
        raise error_at(text, args[0].at, "a window must be longer than nothing")
    if window.kind == "session":
        return Extent("session", args[0].us, True, None, key)
    return Extent("time", args[0].us, window.kind.endswith("Batch"), time)


def _records(text: str, window: s.Window, arg: s.Value | s.Span) -> int:
    if not isinstance(arg, s.Constant) or type(arg.value) is not int or arg.value < 1:
        raise _form(text, window, "it takes a number of records above 0")
    return arg.value


def _column(
    text: str,
    window: s.Window,
    arg: s.Value | s.Span | None,
    stream: str,
    schema: Schema,
    *,
    types: tuple[str, ...] | None,
) -> str:
    if not isinstance(arg, s.Attribute):
        raise _form(text, window, "it takes the name of a column")
    kind = column_type(text, arg, stream, schema)
    if types and kind not in types:
        raise error_at(text, arg.at, f"a window of time goes by a column of time; {arg.name} is {kind}")
    return arg.name


def _form(text: str, window: s.Window, what: str) -> Exception:
    return error_at(text, window.at, f"a window {window.kind!r} is written {_FORMS[window.kind]}; {what}")
