"""Where records go on Spark: each micro-batch once, by its number, in every sink that can take it back.

| sink | written by | after a kill and a restart with the same checkpoint |
|---|---|---|
| `JsonLines`, `Csv` (a file) | the driver | exactly once: what is behind the last whole micro-batch is cut off |
| `ParquetTable`, `Parquet` | tasks, in parallel | exactly once: files appear when their micro-batch is committed |
| `Sqlite` | the driver | exactly once: the number of the micro-batch is in the same transaction |
| `Jdbc` | tasks, then the database | exactly once: the same |
| `InOrder` and what writes at its end | the driver | exactly once: kept on disk until then |
| `Mqtt`, `Kafka`, `Console`, others | the driver | at least once: a micro-batch that was cut short comes again |
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Protocol
from urllib.parse import quote
from uuid import uuid4

from headwater.data.batch import Batch
from headwater.flow.endpoints import Refused
from headwater.flow.flow import Flow
from headwater.flow.steps import Step, Write
from headwater.io.csv import Csv
from headwater.io.jdbc import Jdbc
from headwater.io.jsonl import JsonLines
from headwater.io.kafka import Kafka
from headwater.io.parquet import Parquet
from headwater.io.sqlite import Sqlite
from headwater.io.table import ParquetTable
from headwater.spark.sinks.direct import DirectSink
from headwater.spark.sinks.files import LineFile
from headwater.spark.sinks.jdbc import JdbcTable
from headwater.spark.sinks.kafka import Form, KafkaSink, key_before
from headwater.spark.sinks.spool import SpooledSink
from headwater.spark.sinks.sqlite import SqliteTable
from headwater.spark.sinks.table import Staging, TableSink
from headwater_bench.riot.in_order import InOrder

__all__ = ["OpenSink", "Staging", "TableSink", "check", "guarantee", "key_before", "open_sink"]


class OpenSink(Protocol):
    """An open sink that is written micro-batch by micro-batch."""

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written; what an earlier attempt left of it is gone."""

    def write(self, batch: Batch) -> Refused | None:
        """Write some of its records, as a `Writer` does: what it returns, or all when it raises, is not written."""

    def commit(self, batch_id: int) -> None:
        """Take note that all of it is written."""

    def close(self) -> None:
        """Finish what is written and release what was opened."""


def check(flow: Flow) -> None:
    """Raise what sinks have to say of the columns that they are given, before Java has to be started."""
    for step in flow.steps.values():
        if isinstance(step.kind, Write):
            sink, schema = step.kind.sink, step.inputs[0].schema
            if isinstance(sink, Kafka):
                Form(sink, schema, key_before(flow, step))
            elif isinstance(sink, ParquetTable):
                sink.check(schema)


def open_sink(step: Step, checkpoint: Path, key: tuple[str, ...] = ()) -> OpenSink:
    """Open a step's sink, for records of a key; what it has written is kept in the checkpoint, or in the sink itself."""
    assert isinstance(step.kind, Write)
    sink, schema = step.kind.sink, step.inputs[0].schema
    run = _run_name(checkpoint)
    folder = checkpoint / "sinks" / quote(step.name, safe=" ")
    if isinstance(sink, JsonLines | Csv) and str(sink.path) != "-":
        return LineFile(sink, schema, folder)
    if isinstance(sink, ParquetTable | Parquet):
        return TableSink(sink, schema, _short(run, step))
    if isinstance(sink, Sqlite):
        return SqliteTable(sink, schema, f"{run}/{step.name}")
    if isinstance(sink, Jdbc):
        return JdbcTable(sink, schema, _short(run, step))
    if isinstance(sink, Kafka):
        return KafkaSink(sink, schema, folder, key)
    if isinstance(sink, InOrder):
        return SpooledSink(sink, schema, folder)
    return DirectSink(sink, schema, folder)


def guarantee(step: Step) -> str:
    """Return what holds for a step's sink after a kill, in words."""
    assert isinstance(step.kind, Write)
    sink = step.kind.sink
    exact = isinstance(sink, ParquetTable | Parquet | Sqlite | Jdbc | InOrder) or (
        isinstance(sink, JsonLines | Csv) and str(sink.path) != "-"
    )
    return "exactly once" if exact else "at least once"


def _run_name(checkpoint: Path) -> str:
    """Return a name for all runs that share a checkpoint, by which they know their own in a table of others."""
    path = checkpoint / "sinks" / "run"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name("run.new")
        fresh.write_text(uuid4().hex[:8])
        fresh.replace(path)
    return path.read_text()


def _short(run: str, step: Step) -> str:
    """Return a name for a step of these runs that can be part of a file's or a table's."""
    return f"{run}-{sha256(step.name.encode()).hexdigest()[:4]}"
