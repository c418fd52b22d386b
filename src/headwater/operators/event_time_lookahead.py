"""Which event times the records of a source will have, told before they come to the step that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from headwater.data.batch import CREATED, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Array, Nullable
from headwater.flow.steps import EventTime, Filter, OnTheWay, Select, Split, Union
from headwater.operators import build
from headwater.operators.fault_isolation import as_list, without_the_broken
from headwater.operators.operator import Operator
from headwater.operators.time import EventTimeOperator


class EventTimeLookahead:
    """Runs the steps on the way to event time, which keep nothing, for the times alone: what else they make is dropped."""

    def __init__(self, way: Sequence[OnTheWay]) -> None:
        *before, last = way
        assert isinstance(last.step.kind, EventTime)
        self._column = last.step.kind.column
        self._time = EventTimeOperator(last.step.kind, last.step.name)
        ports = [at.port for at in way[1:]]  # by which each of those before is left
        self._before: list[tuple[OnTheWay, Operator, int]] = [
            (at, build(at.step), port) for at, port in zip(before, ports, strict=True)
        ]
        #: a function may write to the columns that it is given, and the steps will be given the same ones
        self._copies = any(not isinstance(at.step.kind, Filter | Select | Split | Union) for at in before)

    def of(self, batch: Batch) -> Array:
        """Return the time of each record, the latest where it becomes several; `NO_WATERMARK` where it has none."""
        times = np.full(batch.length, NO_WATERMARK, np.int64)
        numbers = np.repeat(np.arange(batch.length), 2).reshape(-1, 2)  # which stay with what comes of a record
        arriving: Batch | None = Batch(batch.columns, batch.length, numbers)
        if self._copies and arriving is not None:
            arriving = arriving.take(np.arange(batch.length))
        with np.errstate(all="ignore"):
            for at, operator, port in self._before:
                if arriving is None:
                    return times
                arriving = _outputs_by(arriving, at, operator, port)
        if arriving is not None and arriving.length:
            bad, _ = self._time.bad(arriving)
            if bad is not None:
                arriving = arriving.filter(~bad)
            column = arriving.columns[self._column]
            values: Array = column.values if isinstance(column, Nullable) else column  # type: ignore[assignment]
            np.maximum.at(times, arriving.stamps[:, CREATED], values)
        return times


def _outputs_by(batch: Batch, at: OnTheWay, operator: Operator, port: int) -> Batch | None:
    """Return what leaves a step by one of its outputs; what breaks it has no time."""
    run = partial(operator.process, port=at.input)
    try:
        outputs = as_list(run(batch))
    except Exception as error:
        outputs = without_the_broken(run, batch, error, at.step.name)
    parts = [part for number, part in outputs if number == port and part.length]
    return concat_batches(parts) if parts else None
