"""Queries in the language of Siddhi, as text or in Python: plain data that becomes steps of a flow.

`grammar.lark`, `parse` and `printer` go from text to `syntax` and back; `fluent` and `formulas` make the same data in
Python; `slips` and `complaint` say what is wrong with a text. `plan` adds steps, in the order that `ordering` finds:
`chaining`, `joining`, `selecting`, `expressions` and `windowing` read what a query says. `sliding`, `tumbling` and
`pairing` are windows, `merging` is a stream of several queries; `clock` and `arrivals` are their time and order. `match`
is patterns and sequences, by an `automaton` that `plain`, `pattern_matcher` and `nfa` run compiled and `general` runs
with `interpreter`, one record at a time. `kernels/` has the loops.
"""

from headwater.cep.fluent import (
    absent,
    app,
    both,
    define,
    either,
    event,
    every,
    group,
    join,
    missing,
    partition,
    pattern,
    renamed,
    sequence,
    stream,
    text,
    times,
)
from headwater.cep.formulas import avg, call, count, deviation, distinct, highest, lowest, total
from headwater.cep.match import DEFAULT_CAP
from headwater.cep.parse import parse
from headwater.cep.plan import add_query
from headwater.errors import QueryError
from headwater.flow.expr import col

__all__ = [
    "DEFAULT_CAP",
    "QueryError",
    "absent",
    "add_query",
    "app",
    "avg",
    "both",
    "call",
    "col",
    "count",
    "define",
    "deviation",
    "distinct",
    "either",
    "event",
    "every",
    "group",
    "highest",
    "join",
    "lowest",
    "missing",
    "parse",
    "partition",
    "pattern",
    "renamed",
    "sequence",
    "stream",
    "text",
    "times",
    "total",
]
