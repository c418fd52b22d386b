"""Why a step fits on no device, in words: the constraint that takes away the last ones."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Flags
from headwater.place import constraint_table as table
from headwater.place.capacity import Capacity


def why_not(capacity: Capacity, step: int) -> str:
    """Say which constraint keeps a step from every device, given what is placed."""
    rows, name = np.ones(capacity.rows, bool), capacity.problem.steps[step]
    for constraint, satisfied in capacity.limits(step):
        if not (rows & satisfied).any():
            return f"no device can hold step '{name}': {constraint.words}{_most(capacity, step, constraint, rows)}"
        rows &= satisfied
    return f"step '{name}' fits"


def _most(capacity: Capacity, step: int, constraint: table.Constraint, candidates: Flags) -> str:
    """What is needed, and what the freest of the devices left could give."""
    rows, problem = np.flatnonzero(candidates), capacity.problem
    if not len(rows):
        return ""
    if constraint in (table.CPU, table.RATE):
        fills = problem.load[step][capacity.kind]
        row = int(rows[np.argmin((capacity.busy + fills)[rows])])
        return (
            f"; at {problem.rate_hz[step]:,.0f} records/s it would fill {100 * fills[row]:,.0f} % "
            f"of {_device_name(capacity, row)}, which is {100 * capacity.busy[row]:,.0f} % busy"
        )
    if isinstance(constraint, table.Limit):
        need, free = capacity.need(constraint, step), capacity.room(constraint)
        row = int(rows[np.argmax((free - need)[rows])])
        if need[row] <= free[row]:
            return ""  # it is a neighbour that has none left
        amount, most = (value / constraint.per_unit for value in (need[row], max(free[row], 0.0)))
        unit = constraint.unit
        return f"; it needs {amount:,.1f} {unit}, the most free is {most:,.1f} {unit} on {_device_name(capacity, row)}"
    return ""


def _device_name(capacity: Capacity, row: int) -> str:
    return f"'{capacity.problem.net.device_name(int(capacity.device[row]))}'"
