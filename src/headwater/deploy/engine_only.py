"""Which steps of a flow cannot be at a site whose parts run on Spark, and why."""

from __future__ import annotations

from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.steps import Step


def engine_only(flow: Flow) -> dict[str, str]:
    """Return why each step that only the engine runs cannot be on Spark, by its name."""
    reasons = {step.name: _why(step) for step in flow.steps.values()}
    return {name: why for name, why in reasons.items() if why} | _on_the_way_of_silence(flow)


def _on_the_way_of_silence(flow: Flow) -> dict[str, str]:
    """Return the steps by which others hear that a stream is silent: Spark does not pass that on, nor heed it."""
    from headwater.spark.partitioning import idle_streams

    reasons: dict[str, str] = {}
    for step, meets in idle_streams(flow):
        for name in flow.reached_from(step.name):
            if flow.reached_from(name).intersection(meets):
                reasons[name] = (
                    f"step '{name}' is on the way of the stream of '{step.name}', which has idle, to '{meets[0]}', where it "
                    "meets others: only the engine heeds idle. Leave out idle, or put the step at another site"
                )
    return reasons


def _why(step: Step) -> str:
    from headwater.spark.partitioning import spark_partitioning

    if step.instances > 1 and (step.is_source or step.is_sink):
        what = "source" if step.is_source else "sink"
        return (
            f"{what} '{step.name}' has {step.instances} instances, and Spark has no such; let it have one (parallel=1)"
        )
    try:
        spark_partitioning(step)
    except RunError as error:
        return str(error)
    return ""
