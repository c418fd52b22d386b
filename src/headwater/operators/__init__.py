"""What a step does to a batch: the running form of each kind of step, shared by all runners.

`execution_graph` lays out the instances of a flow, `task` is one of them at work, with its `queue` and its `counters`:
`channels` is how far time has come where its records come from, `routing` where those go that it made, `saving` how it gets
into a checkpoint, `failures` what becomes of a batch that breaks it.
`operator` says what a runner asks of one; `stateless`, `time`, `keyed`, `count_window`, `time_window`, `processing_time`,
`session`, `join` and `write` are the kinds of a flow; `sliding_window`, `batch_window`, `window_join` and `merge` are those
of queries, whose records `arrivals` puts in order as a `chunk` and whose results are a `projection`; `progress` is how far
their time came. `expression`, `accumulate` and `running` are what they compute with, by `checked_arithmetic` (of whole
numbers), `texts` and `cast`; `fault_isolation` finds the records that break a step, `retry` has them tried again, `undo`
takes a batch back, `snapshot` is how state becomes bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.flow.steps import (
    Apply,
    DeadLetters,
    EventTime,
    Filter,
    Join,
    KeyedScan,
    Map,
    Process,
    Select,
    Split,
    Step,
    Union,
    WindowAggregate,
    Write,
)
from headwater.flow.trouble import Retry
from headwater.flow.windows import Count, Session, by_processing_time
from headwater.operators.operator import DEAD, Operator, Output

if TYPE_CHECKING:
    from headwater.operators.write import Begin

__all__ = ["DEAD", "Operator", "Output", "build"]


def build(step: Step, transaction: Begin | None = None) -> Operator:
    """Make the running form of one instance of a step; `transaction` opens sinks of a run that keeps checkpoints."""
    # Each kind is imported on use: a flow of expressions starts without loading Numba.
    from headwater.operators import stateless

    kind, in_turn = step.kind, isinstance(step.on_error, Retry)
    schema = step.inputs[0].schema if step.inputs else Schema(())
    out = next(iter(step.outputs.values()), schema)
    match kind:
        case Filter():
            return stateless.FilterOperator(kind, schema)
        case Select():
            return stateless.SelectOperator(kind, schema)
        case Split():
            return stateless.SplitOperator(kind, schema)
        case Union() | DeadLetters():
            return stateless.UnionOperator()
        case Map(over="batch"):
            return stateless.MapBatchesOperator(kind, out)
        case Map():
            return stateless.MapRecordsOperator(kind, out, in_turn=in_turn)
        case EventTime():
            from headwater.operators.time import EventTimeOperator

            return EventTimeOperator(kind, step.name)
        case Process():
            from headwater.operators.keyed import ProcessOperator

            return ProcessOperator(kind, step.name, schema, out, in_turn=in_turn)
        case KeyedScan():
            from headwater.operators.keyed import ScanOperator

            return ScanOperator(kind, step.name, schema, out)
        case WindowAggregate():
            return _window(kind, step.name, schema)
        case Join():
            from headwater.operators.join import JoinOperator

            return JoinOperator(kind, step.name, schema, step.inputs[1].schema)
        case Apply(make=make):
            operator = make()
            if not isinstance(operator, Operator):
                raise FlowError(
                    f"{step.where}: step {step.name!r}: make() must return an Operator, got {type(operator).__name__}"
                )
            return operator
        case Write():
            from headwater.operators.write import TimedWriteOperator, WriteOperator

            return (TimedWriteOperator if kind.timed else WriteOperator)(kind, step.name, schema, transaction)
    raise FlowError(f"step {step.name!r} of kind {type(kind).__name__} does not run as an operator")


def _window(kind: WindowAggregate, name: str, schema: Schema) -> Operator:
    from headwater.operators import count_window, session, time_window

    if by_processing_time(kind.window):
        from headwater.operators.processing_time import ProcessingTimeOperator

        return ProcessingTimeOperator(kind, schema, lambda timed, columns: _window(timed, name, columns))
    if isinstance(kind.window, Count):
        if kind.window.every is None:
            return count_window.CountWindowOperator(kind, name, schema)
        return count_window.SlidingCountOperator(kind, name, schema)
    if isinstance(kind.window, Session):
        return session.SessionOperator(kind, name, schema)
    return time_window.TimeWindowOperator(kind, name, schema)
