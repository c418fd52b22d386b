"""Sequences of records without a gap: at most one attempt waits for each stage, so a key needs one small table."""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headwater.cep.kernels.waiting import holds
from headwater.data.jit import kernel


@kernel
def match(base, values, times, slots, passes, conditions, bounds, every, within, rows, first, armed, out):
    """Show records 0 … n - 1 (rows base + i of `values`) to the attempts of their keys; return the number of matches.

    `rows[slot, stage]` are the records of the attempt that waits for `stage`, -1 where none does; `first` their times.
    `out` needs room for one match per record.
    """
    stages = len(bounds) - 1
    m = 0
    for i in range(len(slots)):
        row, slot = base + i, slots[i]
        going = False
        for stage in range(stages - 1, 0, -1):
            if rows[slot, stage, 0] < 0:
                continue
            fits = passes[stage, i] and (within < 0 or first[slot, stage] >= times[i] - within)
            for c in range(bounds[stage], bounds[stage + 1]):
                earlier = values[conditions[c, 3], rows[slot, stage, conditions[c, 2]]]
                if fits and not holds(conditions[c, 0], values[conditions[c, 1], row], earlier):
                    fits = False
            if fits:
                if stage == stages - 1:
                    for s in range(stages - 1):
                        out[m, s] = rows[slot, stage, s]
                    out[m, stage] = row
                    m += 1
                    armed[slot] = 2
                    going = True
                else:
                    for s in range(stage):
                        rows[slot, stage + 1, s] = rows[slot, stage, s]
                    rows[slot, stage + 1, stage] = row
                    first[slot, stage + 1] = first[slot, stage]
                    going = True
            rows[slot, stage, 0] = -1
        if not every and (going or armed[slot] == 2):
            continue
        if passes[0, i]:
            if stages == 1:
                out[m, 0] = row
                m += 1
                armed[slot] = 2
            else:
                rows[slot, 1, 0] = row
                first[slot, 1] = times[i]
    return m
