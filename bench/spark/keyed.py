"""Steps with state by key, by hand: the same Python in a group for each key, on both of Spark's ways to keep state.

A step is a function from a key's new values and what was kept of it to results and what to keep; numpy where a step
lends itself to it, plain Python floats where each value depends on the one before.

This file imports no other of this folder and travels by value: the process in which Spark prepares transformWithState
cannot import what was added to a session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

WINDOW = HORIZON = 10
GAP = 5
LEAST = 13.0  # a value below is a gap

OUT = "msg long, key long, value float"
OUT_MANY = "msg long, key long, values array<float>"

_middle = (WINDOW - 1) / 2
_spread = WINDOW * (WINDOW * WINDOW - 1) / 12
_positions = np.arange(WINDOW) - _middle
_ahead = WINDOW + np.arange(HORIZON) - _middle


def in_order(frames: Iterator[pd.DataFrame]) -> dict[str, np.ndarray]:
    """Return the columns of a group's rows by message number; a shuffle brings them in any order.

    Arrays, since most groups are small and every operation on a DataFrame costs as much as many rows.
    """
    pieces = list(frames)
    rows = pieces[0] if len(pieces) == 1 else pd.concat(pieces)
    order = np.argsort(rows["msg"].to_numpy(), kind="stable")
    return {name: rows[name].to_numpy()[order] for name in rows.columns}


def kalman(values: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    estimate, variance = state.tolist()
    out = []
    for value in values.tolist():
        before = variance + 0.125
        gain = before / (before + 0.32)
        estimate += gain * (value - estimate)
        variance = (1 - gain) * before
        out.append(estimate)
    return np.array(out, np.float32), np.array([estimate, variance])


def sliding_regression(values: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which values have predictions, these, and what to keep: how many values there were, and the last ones."""
    count = int(state[0])
    sequence = np.concatenate([state[1 + WINDOW - min(count, WINDOW) :], values])
    first = max(0, WINDOW - count)  # the first value whose window was full before it came
    which = np.arange(first, len(values)) if count + len(values) > WINDOW else np.arange(0)
    lines = np.zeros((0, HORIZON))
    if len(which):
        windows = sliding_window_view(sequence, WINDOW)[-len(which) :]
        slopes = windows @ _positions / _spread
        lines = windows.mean(axis=1)[:, None] + slopes[:, None] * _ahead
    tail = sequence[-WINDOW:]
    return which, lines, np.concatenate([[count + len(values)], np.zeros(WINDOW - len(tail)), tail])


def filled(values: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace gaps by the mean of the last valid values; `last` holds those from before, NaN where there are fewer."""
    valid = ~np.isnan(values)
    before = last[~np.isnan(last)]
    sequence = np.concatenate([before, values[valid]])
    if not valid.all():
        values = values.copy()
        seen = len(before) + np.cumsum(valid)
        for i in np.flatnonzero(~valid):
            window = sequence[max(0, seen[i] - GAP) : seen[i]]
            values[i] = window.sum() / np.float32(len(window)) if len(window) else 0
    newest = np.full(GAP, np.nan, np.float32)
    tail = sequence[-GAP:]
    newest[GAP - len(tail) :] = tail
    return values, newest


def interpolate(values: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fill gaps with the mean of the last valid values; `kept` holds those, NaN where there are fewer."""
    out, last = filled(np.where(values < LEAST, np.float32(np.nan), values), state.astype(np.float32))
    return out, last.astype(np.float64)


class Task:
    """A step: its function, what is kept of a key that is new, and the columns of its results."""

    def __init__(self, name: str, run: Callable[..., Any], start: list[float], out: str) -> None:
        self.name, self.run, self.start, self.out = name, run, start, out

    def results(self, frames: Iterator[pd.DataFrame], state: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        rows = in_order(frames)
        values = rows["value"]
        if self.name != "sliding regression":
            out, state = self.run(values, state)
            return pd.DataFrame({"msg": rows["msg"], "key": rows["key"], "value": out}), state
        which, lines, state = self.run(values, state)
        values = pd.Series(list(lines.astype(np.float32)), dtype=object)  # also where there are none
        return pd.DataFrame({"msg": rows["msg"][which], "key": rows["key"][which], "values": values}), state


TASKS = {
    "kalman": Task("kalman", kalman, [0.0, 30.0], OUT),
    "interpolation": Task("interpolation", interpolate, [np.nan] * GAP, OUT),
    "sliding regression": Task("sliding regression", sliding_regression, [0.0] * (1 + WINDOW), OUT_MANY),
}


def apply_in_pandas(records: DataFrame, task: Task) -> DataFrame:
    """Run a step with applyInPandasWithState, one group for each key."""

    def run(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        memory = np.frombuffer(state.get[0]) if state.exists else np.array(task.start)
        frame, memory = task.results(frames, memory)
        state.update((memory.tobytes(),))
        yield frame

    return records.groupBy("key").applyInPandasWithState(
        run, task.out, "kept binary", "append", GroupStateTimeout.NoTimeout
    )


def transform_with_state(records: DataFrame, task: Task) -> DataFrame:
    """Run a step with transformWithStateInPandas, one group for each key."""

    class Processor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("kept", "kept binary")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802
            state = np.frombuffer(self.state.get()[0]) if self.state.exists() else np.array(task.start)
            frame, state = task.results(rows, state)
            self.state.update((state.tobytes(),))
            yield frame

        def close(self) -> None:
            pass

    return records.groupBy("key").transformWithStateInPandas(
        statefulProcessor=Processor(), outputStructType=task.out, outputMode="Append", timeMode="None"
    )


cloudpickle.register_pickle_by_value(sys.modules[__name__])
