"""Runs a flow on Spark; the only folder that imports pyspark.

`partitioning` says what a step asks of the place where it runs, `stages` cuts a flow accordingly, `buckets` numbers
the parts that keys are spread over, `wiring` joins the steps of a stage, `executor` runs them, `exits` is where their
records leave and `envelope` what moves between stages; none of these needs Spark. `broadcast` brings a flow to workers,
`keyed` makes stages Spark's operators, `running` is a run, `finite` one over files that have an end,
`foreach_batch` how Java gives it the rows of a micro-batch,
`collecting` what the driver makes of them, `tally` its counts, `progress` and `advice` what Spark says of it,
`checkpoint` what a later run goes on from. `session`, `gateway`, `interpreter`, `daemon`, `forkserver` with its
`forkclient`, `java`, `home` and `niofs` start Spark, from the `archive` of classes that `archiving` makes;
`sources` and `sinks` are how it reads and writes what declares itself, `native` what it has means of its own for, and
`pruning` what it need not read. `columns` makes Spark's Columns of expressions, `relations` its own operators of steps, and
`heads` says how far those have a flow; `counting` is what they have read, `titles` what parts are called in Spark's UI.
`applying` puts a flow between DataFrames: `frames` are what goes in, `outcome` what comes out, and `batched` is for those
that are no streams. `backfilling` runs a flow over tables before it streams, and `history` is how those are read.
`submitting` packs a flow for a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.flow.flow import Flow
from headwater.lazy import lazy_names
from headwater.metrics import Report
from headwater.spark.options import SparkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame

    from headwater.spark.applying import apply as apply
    from headwater.spark.applying import query as query
    from headwater.spark.backfilling import Backfill
    from headwater.spark.frames import Frame as Frame
    from headwater.spark.running import SparkRun

__all__ = ["Frame", "SparkOptions", "apply", "backfill", "query", "run", "start", "start_backfill"]

#: loaded on use: they need pyspark, or what is slow to load
_LAZY = {"Frame": "frames", "apply": "applying", "query": "applying"}


def start(flow: Flow, inputs: DataFrame | Mapping[str, DataFrame] | None = None, **options: Any) -> SparkRun:
    """Start a flow on Spark and return the run in progress; options are those of `SparkOptions`.

    `inputs` are streaming DataFrames of a Spark program that stand in for sources, by name where there are several: the flow
    is then where they are written.
    """
    from headwater.spark.finite import FiniteRun, fits
    from headwater.spark.frames import with_inputs
    from headwater.spark.running import SparkRun

    whole, settings = flow if inputs is None else with_inputs(flow, inputs), SparkOptions(**options)
    return (FiniteRun if fits(whole, settings) else SparkRun)(whole, settings).start()


def run(flow: Flow, inputs: DataFrame | Mapping[str, DataFrame] | None = None, **options: Any) -> Report:
    """Run a flow on Spark to its end and return the report; `inputs` and options are those of `start`."""
    report = start(flow, inputs, **options).wait()
    assert report is not None
    return report


def start_backfill(
    flow: Flow, tables: Any, *, until: str | datetime | None = None, order_by: str | None = None, **options: Any
) -> Backfill:
    """Start reading history and return that at work: see `backfill`."""
    from headwater.spark.backfilling import Backfill, History

    return Backfill(flow, History.of(flow, tables, until, order_by), SparkOptions(**options)).start()


def backfill(
    flow: Flow, tables: Any, *, until: str | datetime | None = None, order_by: str | None = None, **options: Any
) -> Report:
    """Run a flow over tables as a batch job, with event time as if they had streamed, and return the report.

    A table stands in for a source: a DataFrame, the path or URL of Parquet files (or `.csv`, `.json`, `.orc`), or the name
    of a table of Spark's; several are given by the names of their sources. Records before the moment `until` are taken, in
    order of event time, or of the column that `order_by` names. The option `checkpoint` is needed: windows stay open, sinks
    have what came of the tables, and `spark.run(flow, checkpoint=…)` goes on from there with the flow's own sources, or the
    engine behind `headwater takeover`. Called again after it was stopped or killed, it goes on.
    """
    report = start_backfill(flow, tables, until=until, order_by=order_by, **options).wait()
    assert report is not None
    return report


__getattr__, __dir__ = lazy_names(__name__, _LAZY)
