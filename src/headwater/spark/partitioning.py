"""Where a step runs on Spark, and which steps cannot run there."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.partitioning import Partitioning, partitioning_of
from headwater.flow.steps import Apply, EventTime, Step, WindowAggregate
from headwater.flow.trouble import DEAD_LETTER
from headwater.flow.windows import by_processing_time


def refuse_idle(flow: Flow) -> None:
    """Refuse a stream that may be silent where others wait for it: Spark would have them wait for as long as it is.

    Where it meets no other, nobody waits for it, and `idle` means nothing.
    """
    for step, meets in idle_streams(flow):
        raise RunError(
            f"{step.where}: step {step.name!r} cannot run on Spark: its stream meets others in {meets[0]!r}, and has "
            "idle, which only the engine heeds; on Spark all wait for a source that is silent. Leave out idle, or "
            "run it on the engine",
            step=step.name,
        )


def idle_streams(flow: Flow) -> Iterator[tuple[Step, list[str]]]:
    """Return the steps by which a stream may be silent that others wait for, and the steps where it meets them."""
    for step in flow.steps.values():
        if not isinstance(step.kind, EventTime) or step.kind.idle_us is None:
            continue
        reached = flow.reached_from(step.name)
        behind = [flow.steps[name] for name in sorted(reached - {step.name})]
        meets = [each.name for each in behind if any(edge.step not in reached for edge in each.inputs)]
        if meets:
            yield step, meets


def spark_partitioning(step: Step) -> Partitioning:
    """Return what a step asks for; one that cannot run on Spark is refused, with the reason."""
    if step.on_error != DEAD_LETTER:
        raise RunError(
            f"{step.where}: step {step.name!r} cannot run on Spark: its on_error is {str(step.on_error)!r}, which only the "
            "engine heeds; on Spark, records that break a step are dead letters",
            step=step.name,
        )
    if isinstance(step.kind, WindowAggregate) and by_processing_time(step.kind.window):
        raise RunError(
            f"{step.where}: step {step.name!r} cannot run on Spark: its windows close by a machine's clock, and Spark "
            "has many machines; use event time",
            step=step.name,
        )
    replicable = isinstance(step.kind, Apply) and step.kind.operator.replicable
    if isinstance(step.kind, Apply) and step.state != "none" and not step.kind.operator.saves:
        raise RunError(
            f"{step.where}: step {step.name!r} cannot run on Spark: it keeps state that it cannot save; "
            f"give {step.kind.operator.__name__} the methods snapshot and restore",
            step=step.name,
        )
    if step.parallel > 1 and any(edge.grouping == "all" for edge in step.inputs) and not replicable:
        raise RunError(  # it has as many results as instances, a number that Spark chooses
            f"{step.where}: step {step.name!r} cannot run on Spark: all records go to each of its {step.parallel} "
            "instances, and Spark has no such instances; let it have one",
            step=step.name,
        )
    return partitioning_of(step)
