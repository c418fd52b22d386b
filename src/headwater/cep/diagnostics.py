"""Messages about a query text: the line, the column, the text with the wrong part marked, and what was probably meant."""

from __future__ import annotations

import re

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from headwater.cep.syntax import Position
from headwater.errors import QueryError, suggestion

_WORDS = {
    "from", "select", "group", "by", "having", "insert", "into", "define", "stream", "partition", "with", "begin", "end",
    "every", "not", "for", "within", "join", "outer", "left", "right", "full", "unidirectional", "on", "as", "and",
    "or", "of", "is", "null", "window",
}  # fmt: skip
_SIGNS = {
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "COMMA": "','", "SEMICOLON": "';'", "EQUAL": "'='",
    "HASH": "'#'", "DOT": "'.'", "COLON": "':'", "NAME": "a name", "INT": "a number", "REAL": "a number", "TEXT": "a text",
    "$END": "the end", "COMPARE": "a comparison", "PLUS": "'+' or '-'", "TIMES": "'*', '/' or '%'", "LOGIC": "'and' or 'or'",
    "LESSTHAN": "'<'", "MORETHAN": "'>'", "QMARK": "'?'", "STAR": "'*'", "MINUS": "'-'", "__ANON_0": "'->'",
}  # fmt: skip


def error_at(text: str, at: Position, message: str) -> QueryError:
    r"""Return an error that points at a place of the text.

    >>> print(error_at("from a\nselect b", (14, 15), "a has no b"))
    line 2, column 8: a has no b
      select b
             ^
    """
    start, stop = min(at[0], len(text)), min(at[1], len(text))
    line = text.count("\n", 0, start) + 1
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line_text = text[begin : end if end >= 0 else len(text)]
    marks = max(1, min(stop, begin + len(line_text)) - start)
    column = start - begin + 1
    picture = f"  {line_text}\n  {' ' * (column - 1)}{'^' * marks}"
    return QueryError(
        f"line {line}, column {column}: {message}\n{picture}", line=line, column=column, offending=text[start:stop]
    )


def syntax_error(text: str, error: UnexpectedInput) -> QueryError:
    """Return the message for the first place at which the text stops making sense."""
    start = _start(text, error)
    token = _token_at(text, start)
    at = (start, start + max(1, len(token)))
    before = text[:start].rstrip()
    hint = _hint(text, before, token, start, _expected_terminals(error))
    subject = repr(token) if token else "the end of the text"
    alternatives = _alternatives(_expected_terminals(error))
    return error_at(
        text, at, f"{subject} does not fit here{f'; expected {alternatives}' if alternatives else ''}{hint}"
    )


def _start(text: str, error: UnexpectedInput) -> int:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return len(text.rstrip())
    return len(text.rstrip()) if error.pos_in_stream is None else int(error.pos_in_stream)


def _token_at(text: str, start: int) -> str:
    match = re.compile(r"\w+|==?|<=|>=|!=|->|\S").match(text, start)
    return match.group() if match else ""


def _expected_terminals(error: UnexpectedInput) -> set[str]:
    if isinstance(error, UnexpectedCharacters):
        return set(error.allowed or ())
    terminals: set[str] = set(getattr(error, "accepts", None) or getattr(error, "expected", None) or ())
    return terminals


def _alternatives(expected: set[str]) -> str:
    """Name what may stand here, when that is few things."""
    signs = sorted({_SIGNS.get(name, f"'{name.lower()}'") for name in expected})
    return " or ".join(signs) if 0 < len(signs) <= 3 else ""


def _hint(text: str, before: str, token: str, start: int, expected: set[str]) -> str:
    word = token.lower()
    last = re.search(r"(\w+|\S)$", before)
    previous = last.group() if last else ""
    if not before and word in ("", "select"):
        return "; a query begins with 'from', such as 'from levels select *'"
    if token in ("=",) and ("COMPARE" in expected or "RSQB" in expected):
        return "; did you mean '=='?"
    if token in ("&", "|"):
        return f"; did you mean '{'and' if token == '&' else 'or'}'?"
    if token == "!" or (token == "<" and text[start : start + 2] == "<>"):
        return "; write 'not' for the opposite and '!=' for unequal"
    if token in ('"', "'"):
        return "; the quote that opens this text is never closed"
    if word in _WORDS and token != word:
        return f"; keywords are written in small letters: did you mean {word!r}?"
    if _after_number(before) and re.search(r"\b(within|for)\s+\d+$", before):
        return (
            "; a time needs a unit, such as 'within 10 sec'"
            if "within" in before[-20:]
            else "; a time needs a unit, such as 'for 10 sec'"
        )
    if "SELECT" in expected and word in ("insert", ""):
        return "; did you forget 'select'? 'select *' keeps all columns"
    if word == "where":
        return "; a condition stands in brackets after the stream, such as levels[height < 150]"
    if word == "by" and previous == "order":
        return "; 'order by' is not part of this language"
    if word == "order" or word == "limit" or word == "output":
        return f"; '{word}' is not part of this language"
    if previous == "insert":
        return "; did you mean 'insert into'?"
    if previous == "group":
        return "; did you mean 'group by'?"
    if previous == "stream" and token == "(":
        return "; a stream needs a name, such as 'define stream levels (height int)'"
    if "RSQB" in expected and before.count("[") > before.count("]"):
        return "; is a ']' missing?"
    if "RPAR" in expected and before.count("(") > before.count(")"):
        return "; is a ')' missing?"
    if "SEMICOLON" in expected and word in ("from", "define", "partition"):
        return "; statements are separated by ';'"
    close = suggestion(token, sorted(w for w in _WORDS if w.upper() in expected)) if token else ""
    if close:
        return close
    return suggestion(previous, sorted(_WORDS)) if previous.lower() not in _WORDS else ""


def _after_number(before: str) -> bool:
    return before[-1:].isdigit()
