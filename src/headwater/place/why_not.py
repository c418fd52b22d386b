"""Why a step fits on no device, in words: the constraint that takes away the last ones."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Flags
from headwater.place.capacity import Capacity

_WHY = {
    "closed": "all are lost or closed",
    "class": "no class of device can run it",
    "zone": "its input may not go to any trust zone with a fitting device",
    "pin": "the device that it is pinned to does not fit",
    "together": "the device of a step that it must join does not fit",
    "rate": "its records come faster than any fitting device can serve",
    "turn": "a turn of all steps on any fitting device takes longer than its busiest step can wait",
    "cpu": "no fitting device has enough processor left",
    "memory": "no fitting device has enough memory left",
    "energy": "no fitting device has enough battery left",
    "link": "its streams are faster than the links of fitting devices",
    "access": "the access links of its neighbours or of all fitting devices are full",
    "disconnected": "no fitting device can be reached from its neighbours",
}


def why_not(capacity: Capacity, step: int) -> str:
    """Say which constraint keeps a step from every device, given what is placed."""
    left, name = np.ones(capacity.rows, bool), capacity.problem.steps[step]
    for kind, satisfied in capacity.limits(step):
        if not (left & satisfied).any():
            return f"no device can hold step '{name}': {_WHY[kind]}{_most(capacity, step, kind, left)}"
        left &= satisfied
    return f"step '{name}' fits"


def _most(capacity: Capacity, step: int, kind: str, left: Flags) -> str:
    """What is needed, and what the freest of the devices left could give."""
    rows, problem = np.flatnonzero(left), capacity.problem
    if not len(rows):
        return ""
    if kind == "memory":
        limit = np.array([c.memory_bytes for c in problem.net.classes])
        free = limit[capacity.kind] - capacity.memory
        row = int(rows[np.argmax(free[rows])])
        needed = problem.memory_bytes[step] / 1e6
        at = problem.net.device_name(int(capacity.device[row]))
        return f"; it needs {needed:,.1f} MB, the most free is {free[row] / 1e6:,.1f} MB on '{at}'"
    if kind in ("cpu", "rate"):
        fills = problem.load[step][capacity.kind]
        row = int(rows[np.argmin((capacity.busy + fills)[rows])])
        at = problem.net.device_name(int(capacity.device[row]))
        return (
            f"; at {problem.rate_hz[step]:,.0f} records/s it would fill {100 * fills[row]:,.0f} % "
            f"of '{at}', which is {100 * capacity.busy[row]:,.0f} % busy"
        )
    return ""
