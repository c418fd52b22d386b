"""Queries in the language of Siddhi: a text becomes plain data, plain data becomes steps of a flow.

`grammar.lark`, `parse` and `written` go from text to `syntax` and back; `slips` and `complaint` say what is wrong with
a text. `plan` adds steps: `selecting`, `expressions` and `windowing` read what a query says. `sliding`, `tumbling` and
`join` are windows; `match` is patterns and sequences, by an `automaton` that `plain` and `indexed` run compiled and
`tokens` runs in general.
"""

from headwater.cep.match import DEFAULT_CAP
from headwater.cep.parse import parse
from headwater.cep.plan import add_query
from headwater.cep.written import written
from headwater.errors import QueryError

__all__ = ["DEFAULT_CAP", "QueryError", "add_query", "parse", "written"]
