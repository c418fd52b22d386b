"""From plain data back to text; parsing what is written gives the same data."""

from __future__ import annotations

from headwater.cep import syntax as s

#: How tightly operators bind; a part that binds less than its surroundings goes into parentheses.
_BINDING = {
    "or": 1, "and": 2, "not": 3, **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 4), "+": 5, "-": 5,
    "*": 6, "/": 6, "%": 6,
}  # fmt: skip
_ATOM = 9
_MINUS = 7


def query_text(part: s.App | s.Define | s.Query | s.Partition) -> str:
    """Write statements as text.

    >>> from headwater.cep.parse import parse
    >>> query_text(parse("from a [x<1 and(y>2)]select x as z"))
    'from a[x < 1 and y > 2]\\nselect x as z'
    """
    match part:
        case s.App(statements):
            return ";\n".join(query_text(statement) for statement in statements)
        case s.Define(stream, fields):
            return f"define stream {stream} ({', '.join(f'{name} {kind}' for name, kind in fields)})"
        case s.Partition(keys, queries):
            inside = ";\n".join(query_text(query) for query in queries)
            return f"partition with ({', '.join(f'{c} of {st}' for c, st in keys)})\nbegin\n{inside}\nend"
        case s.Query():
            return _query(part)


def _query(query: s.Query) -> str:
    lines = [f"from {_input(query.source)}"]
    lines.append(f"select {', '.join(map(_select_item, query.select)) or '*'}")
    if query.group_by:
        lines.append(f"group by {', '.join(map(value, query.group_by))}")
    if query.having is not None:
        lines.append(f"having {value(query.having)}")
    if query.into is not None:
        lines.append(f"insert into {query.into}")
    return "\n".join(lines)


def _select_item(item: s.SelectItem) -> str:
    return value(item.value) + (f" as {item.name}" if item.name else "")


def _input(source: s.Source | s.Join | s.Chain) -> str:
    match source:
        case s.Source():
            return _source(source)
        case s.Join(left, right, kind, on, one_way):
            before = " unidirectional" if one_way == "left" else ""
            after = " unidirectional" if one_way == "right" else ""
            condition = f" on {value(on)}" if on is not None else ""
            return f"{_source(left)}{before} {kind}{after} {_source(right)}{condition}"
        case s.Chain(kind, links, within):
            sign = " -> " if kind == "pattern" else ", "
            end = f" within {span(within)}" if within else ""
            return sign.join(_link(link, sign) for link in links) + end


def _source(source: s.Source) -> str:
    window = f"#window.{source.window.kind}({', '.join(map(_argument, source.window.args))})" if source.window else ""
    alias = f" as {source.alias}" if source.alias else ""
    return source.stream + _filters(source.filters) + window + alias


def _argument(argument: s.Value | s.Span) -> str:
    return span(argument) if isinstance(argument, s.Span) else value(argument)


def _filters(filters: tuple[s.Value, ...]) -> str:
    return "".join(f"[{value(condition)}]" for condition in filters)


def _link(link: s.Link, sign: str) -> str:
    return ("every " if link.every else "") + _part(link.what, sign)


def _part(part: s.Event | s.Absent | s.Both | s.Group, sign: str) -> str:
    match part:
        case s.Event(stream, ref, filters, times):
            return (f"{ref}={stream}" if ref else stream) + _filters(filters) + (_times(times) if times else "")
        case s.Absent(stream, filters, wait):
            return f"not {stream}{_filters(filters)}" + (f" for {span(wait)}" if wait else "")
        case s.Both(op, left, right):
            return f"{_part(left, sign)} {op} {_part(right, sign)}"
        case s.Group(links):
            return f"({sign.join(_link(link, sign) for link in links)})"


def _times(times: s.Times) -> str:
    short = {(1, None): "+", (0, None): "*", (0, 1): "?"}.get((times.least, times.most))
    if short:
        return short
    if times.most is None:
        return f"<{times.least}:>"
    return f"<{times.least}>" if times.least == times.most else f"<{times.least}:{times.most}>"


def span(length: s.Span) -> str:
    """Write a length of time."""
    return " ".join(f"{count} {unit}" for count, unit in length.parts)


def value(part: s.Value, around: int = 0) -> str:
    """Write an expression, with the parentheses it needs where it stands."""
    text, binding = _bound(part)
    return f"({text})" if binding < around else text


def _bound(part: s.Value) -> tuple[str, int]:
    match part:
        case s.Constant(constant):
            return _constant(constant)
        case s.Attribute(name, ref, index):
            return f"{ref}{_index(index) if index else ''}.{name}" if ref else name, _ATOM
        case s.Function(name, args):
            return f"{name}({', '.join(map(value, args))})", _ATOM
        case s.IsNull(inner):
            return f"{value(inner, _BINDING['=='] + 1)} is null", _BINDING["=="]
        case s.Operation("not", (inner,)):
            return f"not {value(inner, _BINDING['not'])}", _BINDING["not"]
        case s.Operation("-", (inner,)):
            # -(1) stays an operation: without the parentheses it would be read as the number -1
            # and -- would begin a comment
            number = isinstance(inner, s.Constant) and type(inner.value) in (int, float)
            again = isinstance(inner, s.Operation) and inner.op == "-" and len(inner.args) == 1
            return f"-({value(inner)})" if number or again else f"-{value(inner, _MINUS)}", _MINUS
        case s.Operation(op, (left, right)):
            binding = _BINDING[op]
            # comparisons do not chain; the others group to the left
            first = binding + 1 if binding == _BINDING["=="] else binding
            return f"{value(left, first)} {op} {value(right, binding + 1)}", binding
    raise AssertionError(f"no expression: {part!r}")


def _constant(constant: int | float | str | bool) -> tuple[str, int]:
    if isinstance(constant, bool):
        return str(constant).lower(), _ATOM
    if isinstance(constant, str):
        return (f'"{constant}"' if '"' not in constant else f"'{constant}'"), _ATOM
    return repr(constant), _ATOM if not repr(constant).startswith("-") else _MINUS


def _index(index: s.Index) -> str:
    if not index.back:
        return f"[{index.offset}]"
    return f"[last - {index.offset}]" if index.offset else "[last]"
