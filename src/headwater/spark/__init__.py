"""Runs a flow on Spark; the only folder that imports pyspark.

`partitioning` says what a step asks of the place where it runs, `stages` cuts a flow accordingly, `wiring` joins the
steps of a stage, `executor` runs them, `exits` is where their records leave and `envelope` what moves between stages;
none of these needs Spark. `broadcast` brings a flow to workers, `keyed` makes stages Spark's operators, `query` is a
run, `tally` its counts, `progress` what Spark says of it, `checkpoint` what a later run goes on from. `session`,
`gateway`, `interpreter`, `java` and `niofs` start Spark; `sources` and `sinks` are how it reads and writes what declares
itself, `native` what it has means of its own for, and `pruning` what it need not read. `columns` makes Spark's Columns of
expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.flow.flow import Flow
from headwater.metrics import Report
from headwater.spark.options import Options

if TYPE_CHECKING:
    from headwater.spark.query import SparkRun

__all__ = ["Options", "run", "start"]


def start(flow: Flow, **options: Any) -> SparkRun:
    """Start a flow on Spark and return the run in progress; options are those of `Options`."""
    from headwater.spark.query import SparkRun

    return SparkRun(flow, Options(**options)).start()


def run(flow: Flow, **options: Any) -> Report:
    """Run a flow on Spark to its end and return the report."""
    report = start(flow, **options).wait()
    assert report is not None
    return report
