"""Sinks that the driver writes: the records of one micro-batch after the other."""

from __future__ import annotations

import time
from pathlib import Path

from headwater.flow.batch import Batch
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.operators import Operator, build
from headwater.operators.operator import dead_letters
from headwater.spark.parcel import Parcel
from headwater.spark.tally import Tally


class Sinks:
    """All sinks of a flow, open."""

    def __init__(self, flow: Flow, checkpoint: Path) -> None:
        self._flow = flow
        self._open: dict[str, Operator] = {}
        try:
            for name, step in flow.steps.items():
                if step.is_sink:
                    self._open[name] = build(step)
        except BaseException:
            self.close()
            raise

    def write(self, batch_id: int, parcels: dict[str, list[Parcel]], tally: Tally) -> None:
        """Write the records of one micro-batch; those that a sink cannot take are dead letters, as on the engine."""
        letters: list[Batch] = []
        for sink, given in parcels.items():
            for parcel in given:
                assert parcel.batch is not None
                start = time.perf_counter_ns()
                try:
                    self._open[sink].process(parcel.batch, 0)
                except Exception as error:
                    told = [f"{type(error).__name__}: {error}"] * parcel.batch.length
                    letters.append(dead_letters(sink, told, parcel.batch))
                    tally.broke(sink, letters[-1])
                else:
                    tally.wrote(sink, parcel.batch, parcel.emitted_ns, time.perf_counter_ns() - start)
        for step in self._flow.readers_of(DEAD_LETTERS):
            if step.is_sink:
                for batch in letters:
                    self._open[step.name].process(batch, 0)
                    tally.wrote(step.name, batch, time.time_ns(), 0)

    def close(self) -> None:
        """Finish what is written."""
        for operator in self._open.values():
            operator.close()
