"""Which columns of a file a flow looks at: the others need not be read.

Only steps that are expressions are looked through (`headwater.flow.pruning`): the others are told their columns.
"""

from __future__ import annotations

from headwater.flow.flow import Flow
from headwater.flow.pruning import by_expressions
from headwater.flow.pruning import columns_used as used_of


def columns_used(flow: Flow, source: str) -> tuple[str, ...]:
    """Return the columns of a source that its readers use, in its order; at least one, to tell how many records there are.

    >>> from headwater import Flow, col, io
    >>> flow = Flow("low")
    >>> levels = flow.read("levels", io.Items([{"tank": "a", "height": 1.5, "note": ""}]))
    >>> levels.filter("low", col.height < 2).select("tanks", "tank").write("out", io.Discard())
    >>> columns_used(flow, "levels")
    ('tank', 'height')
    """
    schema = flow.steps[source].outputs["out"]
    used = used_of(flow, source, "out", by_expressions)
    return tuple(name for name in schema if name in used) or tuple(schema)[:1]
