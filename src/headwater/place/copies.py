"""Several copies of a step, each with its share of the records: for steps that no single device can serve.

A copy is a step like any other, so every strategy, model and constraint takes it as it is. Records are shared out
evenly, as a keyed stream with many keys does. Each copy has paths of its own, which count as its share of the one
before: so `aggregate` is that of the flow, not that of so many flows.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from headwater.errors import PlacementError
from headwater.place.problem import Problem


def with_copies(problem: Problem, step: str, count: int) -> Problem:
    """Return the problem with a step in `count` copies, named `step #1` to `step #count`."""
    if count < 1:
        raise PlacementError(f"step '{step}' needs at least 1 copy; got {count}")
    at = problem.step(step)
    if problem.pinned[at] >= 0:
        raise PlacementError(f"step '{step}' is pinned to one device and so cannot have {count} copies")
    if any(at in group for group in problem.together):
        raise PlacementError(f"step '{step}' must share a device with others and so cannot have {count} copies")
    if count == 1:
        return problem
    order = [i for i in range(len(problem.steps)) for _ in range(count if i == at else 1)]
    shares = np.array([1 / count if i == at else 1.0 for i in order])
    first = {i: order.index(i) for i in range(len(problem.steps))}
    streams, tail, head = [], [], []
    for e, (a, b) in enumerate(zip(problem.stream_from.tolist(), problem.stream_to.tolist(), strict=True)):
        for copy in range(count if at in (a, b) else 1):
            streams.append(e)
            tail.append(first[a] + (copy if a == at else 0))
            head.append(first[b] + (copy if b == at else 0))
    split = np.array(
        [1 / count if at in (int(problem.stream_from[e]), int(problem.stream_to[e])) else 1 for e in streams]
    )
    numbered = [f"{step} #{k + 1}" for k in range(count)]
    return dataclasses.replace(
        problem,
        steps=(*problem.steps[:at], *numbered, *problem.steps[at + 1 :]),
        service_s=problem.service_s[order],
        overhead_s=problem.overhead_s[order],
        charge_mas=problem.charge_mas[order],
        rate_hz=problem.rate_hz[order] * shares,
        memory_bytes=problem.memory_bytes[order],
        # a window of so many records fills more slowly with a part of them, one of so many seconds does not
        window_s=np.where(problem.window_records[order] > 0, problem.window_s[order] / shares, problem.window_s[order]),
        window_records=problem.window_records[order],
        share=problem.share[order] * shares,
        pinned=problem.pinned[order],
        stream_from=np.array(tail, np.int64),
        stream_to=np.array(head, np.int64),
        stream_hz=problem.stream_hz[streams] * split,
        stream_bytes=problem.stream_bytes[streams],
        hop_s=None if problem.hop_s is None else problem.hop_s[streams],
        zone_allowed=None if problem.zone_allowed is None else problem.zone_allowed[order],
        together=tuple(tuple(first[i] for i in group) for group in problem.together),
    )
