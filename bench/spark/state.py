"""Spark's two ways to keep something of a group, each for the same functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

#: takes a group's key, its rows and what was kept of it; returns results, and what to keep
Run = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], bytes | None], tuple[pd.DataFrame, bytes]]
Keep = Callable[[GroupedData, Run, str], DataFrame]


def in_pandas(groups: GroupedData, run: Run, out: str) -> DataFrame:
    """Keep it with applyInPandasWithState."""

    def step(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        frame, data = run(key, frames, state.get[0] if state.exists else None)
        state.update((data,))
        yield frame

    return groups.applyInPandasWithState(step, out, "kept binary", "append", GroupStateTimeout.NoTimeout)


def transformed(groups: GroupedData, run: Run, out: str) -> DataFrame:
    """Keep it with transformWithStateInPandas."""

    class Processor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("kept", "kept binary")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802
            frame, data = run(key, rows, self.state.get()[0] if self.state.exists() else None)
            self.state.update((data,))
            yield frame

        def close(self) -> None:
            pass

    return groups.transformWithStateInPandas(
        statefulProcessor=Processor(), outputStructType=out, outputMode="Append", timeMode="None"
    )
