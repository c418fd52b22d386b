"""A checkpoint of the engine as a moment of its flow, for another runner, and the other way round."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headwater.data.batch import NO_WATERMARK, Batch
from headwater.engine.checkpoint.compatibility import Compatibility
from headwater.engine.checkpoint.in_flight import enqueue
from headwater.engine.checkpoint.ledgers import Ledgers, writers_of
from headwater.engine.checkpoint.recovery import Recovery, describe, heading, identities
from headwater.engine.checkpoint.store import Checkpoint, Store
from headwater.errors import RunError, listed
from headwater.flow.endpoints import resume_of, tells_time
from headwater.flow.flow import Flow
from headwater.flow.steps import Read, Step
from headwater.io.receiving.rounds import batches_of, entries
from headwater.operators import DEAD, build
from headwater.operators.execution_graph import ExecutionGraph, Instance
from headwater.operators.moment import Moment, StepMoment
from headwater.operators.operator import Operator, Select
from headwater.operators.task import Task


def moment_of(folder: Path, flow: Flow, *, fresh: Collection[str] = ()) -> Moment:
    """Return what a flow was at the last checkpoint in a folder, which stays as it is.

    What was on its way then is processed here, up to the sinks; of a run in lanes, what other lanes than the first had ready
    for their sinks is brought there, as a run in one lane would do. `fresh` are steps that the flow may not have had then.
    Raises RunError where the flow cannot go on from it.
    """
    checkpoint = Store(folder).latest()
    if checkpoint is None:
        raise RunError(f"there is no checkpoint in {folder} yet; a run makes its first after --every")
    _check_steps(checkpoint, flow, fresh)
    graph = ExecutionGraph.of(flow)
    _check_instances(graph)
    fitting = Compatibility(checkpoint, flow)
    moment = Moment(checkpoint.number, folder / "sinks")
    before = Recovery(checkpoint, graph)
    sources = [each for each in graph.instances if each.step.is_source]
    unsent = {each.step.name: _open_source(moment, each.step, before.position(each), folder) for each in sources}
    at_rest = fitting.at_rest(unsent)
    moment.source_watermarks = _source_watermarks(flow, at_rest.content["tasks"])
    recovery = Recovery(at_rest, graph, fitting.then, fitting.now)
    _settle_sinks(checkpoint, flow, folder)
    for delivery in recovery.queues():
        if delivery.batch is not None:
            moment.waiting.setdefault(graph.instances[delivery.to].step.name, []).append(delivery.batch)
    for step in flow.steps.values():
        if not (step.is_source or step.is_sink):
            moment.steps[step.name] = _together(step, graph.of_step(step.name), recovery)
    return moment


def write_moment(moment: Moment, flow: Flow, folder: Path) -> None:
    """Write a moment as a checkpoint in a new folder; the notes of sinks and the logs are for the caller to copy."""
    graph = ExecutionGraph.of(flow)
    _check_instances(graph)
    watermarks = _watermarks(graph, moment)
    states: list[bytes] = []
    tasks: dict[str, list[Any]] = {}
    for instance in graph.instances:
        if not instance.step.is_source:
            state = _task_state(instance, moment, watermarks[instance.index])
            states.append(state["state"])
            tasks.setdefault(instance.step.name, []).append({**state, "state": len(states) - 1, "whole": True})
    for source, batches in moment.arrived.items():
        enqueue(flow, tasks, source, "out", batches)
    positions = {name: [_engine_position(moment, name, at)] for name, at in moment.positions.items()}
    content = heading(flow, identities(flow)) | {"positions": positions, "tasks": tasks}
    Store(folder).write(moment.part, content, states)


def log_folder(folder: Path, source: str) -> Path:
    """Return where the engine keeps what a source was sent whose sender waits."""
    return folder / "sources" / quote(source, safe=" ")


def _open_source(moment: Moment, step: Step, position: Any, folder: Path) -> list[Batch]:
    """Take over how far a source was read; return what its log has of an entry that was handed out in part."""
    assert isinstance(step.kind, Read)
    rest: list[Batch] = []
    if resume_of(step.kind.source) == "sender":
        log = moment.logs[step.name] = log_folder(folder, step.name)
        position, count = (0, 0) if position is None else position
        if count:
            rest = _rest(log, position, count)
            position += 1
    moment.positions[step.name] = position
    return rest


def _together(step: Step, instances: list[Instance], recovery: Recovery) -> StepMoment:
    """Return a step as one, whose instances have each the state of some keys."""
    tasks = [Task(instance, build(step), measure=False) for instance in instances]
    for task in tasks:
        recovery.load(task)
    states = [task.save() for task in tasks]
    operator = tasks[0].operator
    assert operator is not None
    if step.state in ("key", "stream"):
        for each in states[1:]:
            operator.restore(each["state"])
    return StepMoment(operator, min(each["watermark"] for each in states), all(each["ended"] for each in states))


def _rest(folder: Path, entry: int, count: int) -> list[Batch]:
    """Return the records of an entry of a log behind its first ones."""
    batches = []
    for port, batch in batches_of(entries(folder, entry, entry + 1)[0].data):
        if port != DEAD:
            if batch.length > count:
                batches.append(batch.slice(count, batch.length))
            count = max(0, count - batch.length)
    return batches


def _settle_sinks(checkpoint: Checkpoint, flow: Flow, folder: Path) -> None:
    """Have what lanes have ready at their sinks there: elsewhere a sink has one writer, who knows nothing of theirs."""
    ledgers = Ledgers(
        folder, checkpoint, [name for step in flow.steps.values() if step.is_sink for name in writers_of(step)]
    )
    ledgers.open_retired(flow)
    ledgers.close()
    if undelivered := ledgers.undelivered():
        raise RunError(
            f"sink {listed(undelivered)} has yet to be given what waits for it since the flow ran in lanes, and does not "
            "take it; is it running? Try again when it is"
        )


def _source_watermarks(flow: Flow, tasks: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """Return how far time has come at sources that tell it, as those know who read them."""
    times_of: dict[str, list[int]] = {}
    for step in flow.steps.values():
        for port, edge in enumerate(step.inputs):
            kind = flow.steps[edge.step].kind
            if isinstance(kind, Read) and tells_time(kind.source):
                for state in tasks.get(step.name, ()):
                    ways = zip(state["ports"], state["watermarks"], strict=True)
                    times_of.setdefault(edge.step, []).extend(at for number, at in ways if number == port)
    return {name: min(times) for name, times in times_of.items() if times}


def _check_steps(checkpoint: Checkpoint, flow: Flow, fresh: Collection[str]) -> None:
    unknown = [name for name in describe(flow) if name not in checkpoint.content["steps"] and name not in fresh]
    if unknown:
        raise RunError(
            f"flow {flow.name!r} had no step {listed(unknown)} then; run it once more where it ran, stop it, and "
            "move it then"
        )


def _check_instances(graph: ExecutionGraph) -> None:
    """Refuse steps of which each instance has something of its own that is not by key."""
    for step in graph.flow.steps.values():
        if step.instances > 1 and (step.is_source or step.is_sink or step.state == "all"):
            what = "source" if step.is_source else "sink" if step.is_sink else "step"
            raise RunError(
                f"{what} {step.name!r} has {step.instances} instances on the engine, each with a place or state of its own "
                "that is not by key; let it have one (parallel=1), run it so, stop it, and move it then"
            )


def _watermarks(graph: ExecutionGraph, moment: Moment) -> list[list[int]]:
    """Return how far time has come by each channel of each instance: as far as the step that sends has come."""
    by_step = moment.watermarks()
    watermarks = [[NO_WATERMARK] * len(instance.channel_ports) for instance in graph.instances]
    for sender in graph.instances:
        for port, routes in sender.routes.items():
            for to, channel in (target for route in routes if port != DEAD for target in route.targets):
                watermarks[to][channel] = sender.step.time_behind(by_step.get(sender.step.name, NO_WATERMARK))
    return watermarks


def _task_state(instance: Instance, moment: Moment, watermarks: list[int]) -> dict[str, Any]:
    """Return what a checkpoint has of an instance, as its task would have saved itself."""
    times = {"watermarks": watermarks, "idle": [], "ports": list(instance.channel_ports)}
    step = moment.steps.get(instance.step.name)
    if step is None:
        waiting = [[0, batch, NO_WATERMARK] for batch in moment.waiting.get(instance.step.name, [])]
        earliest = min(watermarks, default=NO_WATERMARK)
        return {**times, "watermark": earliest, "ended": False, "state": b"", "queue": waiting}
    state = _state(step.operator, instance)
    return {**times, "watermark": step.watermark, "ended": step.ended, "state": state, "queue": []}


def _state(operator: Operator, instance: Instance) -> bytes:
    of = instance.step.instances
    return operator.snapshot(Select(instance.number, of) if of > 1 and instance.step.state == "key" else None)


def _engine_position(moment: Moment, source: str, position: Any) -> Any:
    """Return a position as the engine's reader tells it: in a log, the entry and how much of it was handed out."""
    return [position, 0] if source in moment.logs else position
