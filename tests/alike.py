"""What of two results must be the same, where records may come in another order."""

from collections import Counter, defaultdict

from headwater.flow.steps import Process, WindowAggregate


def as_multiset(rows):
    return Counter(tuple(row.items()) for row in rows)


def by_key(rows, key="key"):
    """Return the records of each key, in their order."""
    kept = defaultdict(list)
    for row in rows:
        kept[row[key]].append(row)
    return dict(kept)


def straight(flow):
    """Whether every step has one instance and one input, so that the whole order is known."""
    return all(step.parallel == 1 and len(step.inputs) < 2 for step in flow.steps.values())


def order_matters(flow):
    """Whether a step's results depend on the order in which several senders reach it."""
    stateful = any(isinstance(step.kind, Process | WindowAggregate) for step in flow.steps.values())
    return stateful and not straight(flow)
