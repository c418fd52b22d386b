"""What a step asks of the place where it runs: any place, that of its key, or one place for all records.

Runners that spread a flow over processes or machines cut it by this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.flow.expr import Column
from headwater.flow.state import makes_of
from headwater.flow.steps import (
    EventTime,
    Filter,
    Join,
    KeyedScan,
    Select,
    Split,
    State,
    Step,
    Union,
    WindowAggregate,
)

#: `free` runs anywhere; `time` where its whole stream passes in order; `keyed` where its key is; `one` in one place;
#: `copied` anywhere too, as long as every copy is told the same by the inputs that go to all
Role = Literal["source", "sink", "free", "time", "keyed", "one", "copied"]
_ROLES: dict[State, Role] = {"none": "free", "stream": "time", "key": "keyed", "all": "one", "copied": "copied"}


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Where a step can run, and whether event time matters to it."""

    role: Role
    #: whether it does something when event time moves on
    timed: bool = False


def partitioning_of(step: Step) -> Partitioning:
    """Return what a step asks for, as it declares."""
    role: Role = "source" if step.is_source else "sink" if step.is_sink else _ROLES[step.state]
    return Partitioning(role, step.kind.timed)


def names_in_output(step: Step, port: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what the key columns `names` of a step's first input are called in its output; None if they are lost."""
    match step.kind:
        case Filter() | Split() | Union() | EventTime():
            return names
        case Select(columns=columns, keep=keep):
            outputs = [_name_after_select(name, dict(columns), keep) for name in names]
            return None if None in outputs else tuple(name for name in outputs if name is not None)
        case WindowAggregate(keys=keys):
            return names if port == "late" or all(name in keys for name in names) else None
        case Join():
            return names if port != "late right" else None
        case KeyedScan(scan=scan):
            computed = makes_of(scan)
            unchanged = computed is not None and all(
                name in step.outputs[port] and name not in computed for name in names
            )
            return names if unchanged else None
    return None


def _name_after_select(name: str, columns: dict[str, object], keep: bool) -> str | None:
    if keep and name not in columns:
        return name
    same = [out for out, expr in columns.items() if isinstance(expr, Column) and expr.name == name]
    return name if name in same else next(iter(same), None)
