"""Messages about a query text: the line, the column, the text with the wrong part marked, the likely fix."""

from __future__ import annotations

from headwater.cep.syntax import Place
from headwater.errors import QueryError


def complaint(text: str, at: Place, message: str) -> QueryError:
    r"""Return an error that points at a place of the text.

    >>> print(complaint("from a\nselect b", (14, 15), "a has no b"))
    line 2, column 8: a has no b
      select b
             ^
    """
    start, stop = min(at[0], len(text)), min(at[1], len(text))
    line = text.count("\n", 0, start) + 1
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    shown = text[begin : end if end >= 0 else len(text)]
    marks = max(1, min(stop, begin + len(shown)) - start)
    column = start - begin + 1
    picture = f"  {shown}\n  {' ' * (column - 1)}{'^' * marks}"
    return QueryError(
        f"line {line}, column {column}: {message}\n{picture}", line=line, column=column, offending=text[start:stop]
    )
