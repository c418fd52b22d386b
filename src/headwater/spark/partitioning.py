"""What a step asks of the place where it runs: any place, that of its key, or one place for all records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.data.batch import Batch
from headwater.errors import RunError
from headwater.flow.expr import Column
from headwater.flow.steps import (
    EventTime,
    Filter,
    Join,
    KeyedScan,
    Read,
    Select,
    Split,
    Step,
    Union,
    WindowAggregate,
    Write,
)
from headwater.operators import Operator, build

#: `free` runs anywhere; `time` where its whole stream passes in order; `keyed` where its key is; `one` in one place;
#: `copied` anywhere too, as long as every copy is told the same by the inputs that go to all
Place = Literal["source", "sink", "free", "time", "keyed", "one", "copied"]


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Where a step can run, and whether event time matters to it."""

    place: Place
    #: whether it does something when event time moves on
    timed: bool = False
    #: columns that a scan computes, so that keys among them are no longer what they were; None when not known
    made: frozenset[str] | None = None


def partitioning_of(step: Step) -> Partitioning:
    """Find out what a step is; one that cannot run on Spark is refused, with the reason."""
    if isinstance(step.kind, Read):
        return Partitioning("source")
    if isinstance(step.kind, Write):
        return Partitioning("sink")
    if isinstance(step.kind, EventTime):
        return Partitioning("time")
    operator = build(step)
    try:
        timed = type(operator).advance is not Operator.advance
        if operator.stateless and not timed:
            _refuse_copies(step, operator)
            return Partitioning("free")
        if type(operator).snapshot is Operator.snapshot:
            raise RunError(
                f"{step.where}: step {step.name!r} cannot run on Spark: it keeps state that it cannot save; "
                f"give {type(operator).__name__} the methods snapshot and restore",
                step=step.name,
            )
        if operator.replicable and not any(given.keys for given in step.inputs):
            return Partitioning("copied", timed)
        _refuse_copies(step, operator)
        keyed = all(given.keys or given.grouping == "all" for given in step.inputs) and any(
            given.keys for given in step.inputs
        )
        return Partitioning("keyed" if keyed else "one", timed, _made_by(step))
    finally:
        operator.close()


def _refuse_copies(step: Step, operator: Operator) -> None:
    """Refuse what has as many results as it has instances, a number that Spark chooses."""
    if step.parallel > 1 and any(given.grouping == "all" for given in step.inputs) and not operator.replicable:
        raise RunError(
            f"{step.where}: step {step.name!r} cannot run on Spark: all records go to each of its {step.parallel} "
            "instances, and Spark has no such instances; let it have one",
            step=step.name,
        )


def _made_by(step: Step) -> frozenset[str] | None:
    """Ask a scan for the columns that it computes, by giving it no records."""
    if not isinstance(step.kind, KeyedScan):
        return None
    import numpy as np

    scan = step.kind.scan
    state = {name: np.full((1, *cell.shape), cell.initial, cell.dtype) for name, cell in scan.state.items()}
    try:
        result = scan.run(Batch.none(step.inputs[0].schema), np.zeros(0, np.int64), state)
    except Exception:  # it needs records: then nothing is known
        return None
    columns = result[1] if isinstance(result, tuple) else result
    return frozenset(columns)


def kept(step: Step, partitioning: Partitioning, port: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what the key columns `names` of a step's first input are called in its output; None if they are lost."""
    match step.kind:
        case Filter() | Split() | Union() | EventTime():
            return names
        case Select(columns=columns, keep=keep):
            found = [_selected(name, dict(columns), keep) for name in names]
            return None if None in found else tuple(name for name in found if name is not None)
        case WindowAggregate(keys=keys):
            return names if port == "late" or all(name in keys for name in names) else None
        case Join():
            return names if port != "late right" else None
        case KeyedScan() if partitioning.made is not None:
            there = all(name in step.outputs[port] and name not in partitioning.made for name in names)
            return names if there else None
    return None


def _selected(name: str, columns: dict[str, object], keep: bool) -> str | None:
    if keep and name not in columns:
        return name
    same = [out for out, expr in columns.items() if isinstance(expr, Column) and expr.name == name]
    return name if name in same else next(iter(same), None)
