"""The state that Spark has kept for a checkpoint, read back by Spark itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.spark.checkpoint import Checkpoint
from headwater.spark.seeds import seed_of
from headwater.spark.session import session
from headwater.spark.stages import Layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def states_of(checkpoint: Checkpoint, layout: Layout, batch: int) -> dict[int, bytes]:
    """Return the state of each bucket behind a micro-batch, as its executor saved it; those without any are left out."""
    states: dict[int, bytes] = {}
    if checkpoint.takeover() is not None:
        states = {bucket: seed_of(checkpoint.seeds, bucket) for bucket in _buckets(layout)}
    if batch >= 0 and layout.levels:
        spark = session()
        for operator in checkpoint.operators():
            states |= _states(spark, checkpoint, operator, batch)
    return states


def _states(spark: SparkSession, checkpoint: Checkpoint, operator: int, batch: int) -> dict[int, bytes]:
    options = {"operatorId": operator, "batchId": batch}
    rows = spark.read.format("statestore").options(**options).load(checkpoint.query)
    states = rows.selectExpr("key.bucket AS bucket", "value.groupState.state AS state").toArrow()
    return dict(zip(states["bucket"].to_pylist(), states["state"].to_pylist(), strict=True))


def _buckets(layout: Layout) -> list[int]:
    return [number for stage in layout.stages for number in stage.numbers]
