"""A look at records as they pass a step, for whoever asks: the next few, then nothing is looked at any more.

Nobody pays for it otherwise: while somebody looks, the step's operator is called through the look.
"""

from __future__ import annotations

import threading
from typing import Any

from headwater.data.batch import Batch
from headwater.engine.run import EngineRun
from headwater.errors import RunError, listed, suggestion
from headwater.operators.fault_isolation import as_list
from headwater.operators.operator import DEAD, Output
from headwater.operators.task import Task

_LONGEST = 500  #: characters of a text that are shown

_looks = threading.Lock()  #: one look at a time: each takes off what it has put on


class Glance:
    """The records that tasks take in and give out from now on, up to so many of each."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.inputs: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self.enough = threading.Event()

    def see_inputs(self, batch: Batch) -> None:
        """See what a task takes in."""
        self._keep(self.inputs, batch)

    def see_outputs(self, result: Output) -> None:
        """See what a task gives out; its dead letters are kept elsewhere."""
        for port, batch in as_list(result):
            if port != DEAD:
                self._keep(self.outputs, batch)
        if len(self.inputs) >= self._limit:
            self.enough.set()

    def _keep(self, rows: list[dict[str, Any]], batch: Batch) -> None:
        with self._lock:
            more = min(batch.length, self._limit - len(rows))
            if more > 0:
                rows += [_shorten(row) for row in batch.slice(0, more).rows()]


def peek(run: Any, step: str, limit: int, within_s: float) -> dict[str, Any]:
    """Return up to `limit` of the next records that a step takes in and gives out; fewer when the time is up first."""
    if not isinstance(run, EngineRun):
        raise RunError(
            "records can be looked at where a flow runs in one process of the engine; not in lanes or on Spark"
        )
    if step not in run.flow.steps:
        names = list(run.flow.steps)
        raise RunError(
            f"flow {run.flow.name!r} has no step {step!r}; steps are {listed(names)}{suggestion(step, names)}"
        )
    is_source = run.flow.steps[step].is_source
    readers = {each.name for each in run.flow.steps.values() if any(edge.step == step for edge in each.inputs)}
    glance = Glance(limit)
    with _looks:
        tasks = [task for task in run.tasks if (task.name in readers if is_source else task.name == step)]
        before = [_look_through(task, glance) for task in tasks if task.operator is not None]
        try:
            glance.enough.wait(within_s)
        finally:
            for task, operate in before:
                task.operate = operate
    if is_source:  # what the steps behind it take in is what it gives out
        return {"step": step, "in": [], "out": glance.inputs}
    return {"step": step, "in": glance.inputs, "out": glance.outputs}


def _look_through(task: Task, glance: Glance) -> tuple[Task, Any]:
    operate = task.operate

    def observe(batch: Batch, port: int) -> Output:
        glance.see_inputs(batch)
        result = operate(batch, port)
        glance.see_outputs(result)
        return result

    task.operate = observe
    return task, operate


def _shorten(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value[:_LONGEST] + "…" if _is_long(value) else value for name, value in row.items()}


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > _LONGEST
