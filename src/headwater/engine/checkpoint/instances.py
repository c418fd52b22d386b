"""A checkpoint of lanes as one of instances: each lane that has a step by key is an instance of it, with a number.

That holds for a site's part of a flow, which is spread by whole keys alone: records go to the instance that has their
key as they would have gone to the lane. Such a checkpoint can be cut anew with those of other sites, whatever numbers of
lanes they had, without a look at any state; the run that goes on from it shares that out by key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headwater.data.batch import NO_WATERMARK
from headwater.engine.checkpoint.drain import TaskState, fit_channels
from headwater.engine.checkpoint.in_flight import put
from headwater.engine.checkpoint.store import Checkpoint
from headwater.flow.flow import Flow
from headwater.flow.steps import Step
from headwater.operators import build


def of_instances(checkpoint: Checkpoint, flow: Flow) -> Checkpoint:
    """Return the checkpoint of a part of a flow as if no lanes had made it."""
    content = checkpoint.content
    if content.get("lanes", 1) == 1:
        return checkpoint
    layout = content["layout"]
    to_all = {(step, port) for step, port, to, _ in layout["moves"] if to == "all"}
    tasks: dict[str, list[TaskState]] = {}
    for name, states in content["tasks"].items():
        if name not in content["steps"]:  # where records leave a lane
            continue
        if layout["where"].get(name) == "blocks":  # which knows numbers of blocks in place of time
            states = [fit_channels(each, each["ports"], timeless=True) for each in states]
        if content["steps"][name]["kind"] == "Write":  # its writers are known by their lanes
            tasks[name] = states
        elif name in flow.steps and flow.steps[name].state == "stream":
            tasks[name] = [{**_as_one(states, ()), "state": _latest(flow.steps[name], states)}]
        elif name not in flow.steps or flow.steps[name].state in ("none", "copied"):
            tasks[name] = [_as_one(states, {port for step, port in to_all if step == name})]
        else:
            tasks[name] = [{key: value for key, value in each.items() if key != "lane"} for each in states]
    for outlet, readers in layout["outlets"].items():
        _send_on(content["tasks"].get(outlet, []), readers, tasks, flow)
    others = {key: value for key, value in content.items() if key not in ("lanes", "layout")}
    return Checkpoint(checkpoint.number, {**others, "tasks": tasks})


def _as_one(states: list[TaskState], to_all: Collection[int]) -> TaskState:
    """Return what all lanes have of a step that keeps nothing, or of which each has the same, as one task has it.

    What is on its way from all of them comes first, then the time that no lane is behind.
    """
    first = states[0]
    ports: list[int] = first["ports"]
    queue: list[list[Any]] = []
    for at, each in enumerate(states):
        for channel, batch, _ in each["queue"]:
            port = each["ports"][channel]
            if batch is not None and not (at and port in to_all):
                queue.append([ports.index(port) if port in ports else 0, batch, NO_WATERMARK])
    for channel, port in enumerate(ports):
        time = min(_time_with_queue(each, port) for each in states)
        if time > first["watermarks"][channel]:
            queue.append([channel, None, time])
    watermarks = [min(_time(each, port) for each in states) for port in ports]
    together = {"watermark": min(each["watermark"] for each in states), "watermarks": watermarks, "idle": []}
    return {**first, **together, "ended": all(each["ended"] for each in states), "queue": queue}


def _latest(step: Step, states: list[TaskState]) -> bytes:
    """Return how far event time has come by what all lanes have read: each has seen other blocks."""
    operator = build(step)
    for each in states:
        operator.restore(each["state"])
    return operator.snapshot()


def _time(state: TaskState, port: int) -> int:
    """Return how far time had come by an input."""
    times = [at for at, each in zip(state["watermarks"], state["ports"], strict=True) if each == port]
    return min(times, default=NO_WATERMARK)


def _time_with_queue(state: TaskState, port: int) -> int:
    """Return how far time will have come by an input once what is on its way has."""
    later: list[int] = [watermark for channel, _, watermark in state["queue"] if state["ports"][channel] == port]
    return max([_time(state, port), *later])


def _send_on(outlets: list[TaskState], readers: list[list[Any]], tasks: dict[str, list[TaskState]], flow: Flow) -> None:
    """Have what waits where records leave a lane wait at the steps that they go to."""
    for outlet in outlets:
        for _, batch, _ in outlet["queue"]:
            for step, port in readers:
                if batch is not None and step in tasks and step in flow.steps:
                    put(tasks[step], port, flow.steps[step].inputs[port], batch)
