"""Which steps of a flow cannot be at a site whose parts run on Spark, and why."""

from __future__ import annotations

from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.steps import Step


def engine_only(flow: Flow) -> dict[str, str]:
    """Return why each step that only the engine runs cannot be on Spark, by its name."""
    told = {step.name: _why(step) for step in flow.steps.values()}
    return {name: why for name, why in told.items() if why}


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
