"""Queries in the language of Siddhi, as text or in Python: plain data that becomes steps of a flow.

`grammar.lark`, `parse` and `printer` go from text to `syntax` and back; `fluent` and `formulas` make the same data in
Python; `diagnostics` says what is wrong with a text. `plan` adds steps, with `planning/` for the parts of a query and
`expressions` for its values. Windows and joins are operators of `headwater.operators`; `match` is the step of patterns and
sequences, an `automaton` that one of `matchers/` runs. `kernels/` has their loops.
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
from headwater.cep.formulas import call, count, distinct, max, mean, min, std, sum
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
    "both",
    "call",
    "col",
    "count",
    "define",
    "distinct",
    "either",
    "event",
    "every",
    "group",
    "join",
    "max",
    "mean",
    "min",
    "missing",
    "parse",
    "partition",
    "pattern",
    "renamed",
    "sequence",
    "std",
    "stream",
    "sum",
    "text",
    "times",
]
