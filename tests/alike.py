"""What of two results must be the same, where records may come in another order."""

from collections import Counter, defaultdict

from headwater.flow import Flow
from headwater.flow.steps import Process, WindowAggregate
from headwater.io import Items


def as_multiset(rows):
    return Counter(tuple(row.items()) for row in rows)


def by_key(rows, key="key"):
    """Return the records of each key, in their order."""
    kept = defaultdict(list)
    for row in rows:
        kept[row[key]].append(row)
    return dict(kept)


def keyed_chain(rows, sink):
    """Return a flow of keyed steps, each in parallel, that change nothing: `p0` to `p2` between `r` and `out`."""
    flow = Flow("keyed")
    stream = flow.read("r", Items(rows, {"n": int, "key": str, "x": float}))
    for i in range(3):
        stream = stream.key_by("key").process(f"p{i}", lambda state, r: (1, r), parallel=3)
    stream.write("out", sink)
    return flow


def straight(flow):
    """Whether every step has one instance and one input, so that the whole order is known."""
    return all(step.parallel == 1 and len(step.inputs) < 2 for step in flow.steps.values())


def order_matters(flow):
    """Whether a step's results depend on the order in which several senders reach it."""
    stateful = any(isinstance(step.kind, Process | WindowAggregate) for step in flow.steps.values())
    return stateful and not straight(flow)
