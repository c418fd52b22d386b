"""Files at URLs: of this machine's own, by tasks; elsewhere by Spark's own means, where each micro-batch is one file.

Whoever is killed between writing a file and its own note of that finds out before it writes once more: the number of the
micro-batch is in the file's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from headwater.data.batch import Batch, concat_batches
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.flow.endpoints import Ledger, NumberedWriter, Refused
from headwater.io.arrow import table_of
from headwater.io.delta.log import DeltaLog
from headwater.io.mqtt import text_column
from headwater.io.records import json_lines
from headwater.io.sifting import sift
from headwater.io.spark_table import SparkTable
from headwater.io.transactions.journal import Journal
from headwater.io.transactions.table import ENDINGS, TableForm, TableParts
from headwater.io.urls import path_in
from headwater.spark.progress import cause_in
from headwater.spark.sinks.gathering import GatheringWriter
from headwater.spark.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TableWriting:
    """How Spark writes files."""

    guarantee = "exactly once"

    def __init__(self, sink: SparkTable) -> None:
        self._sink = sink
        path = path_in(sink.address)
        #: where tasks write files themselves, in a form of which Python has the same ones as Spark
        self._near = path if sink.form in ENDINGS and not sink.options else None
        self.way = "written by the driver" if self._near is None else "written by tasks"

    def check(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Raise if the form cannot have these columns."""
        if self._sink.form == "text" and len(schema) != 1:
            raise FlowError(f"{self._sink} has one text column, the lines; got ({schema})")
        if self._sink.form == "text":
            text_column(schema, ())

    def open(self, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> NumberedWriter:
        """Start writing."""
        if self._near is not None:
            return TableParts(self._near, schema, (), ledger, anew=False, form=cast("TableForm", self._sink.form))
        kind = _KINDS.get(self._sink.form, _Files)
        return kind(self._sink, schema, ledger)


class _Files(GatheringWriter):
    """A folder of files, each with the records of a micro-batch, whose number is in its name.

    A file is written out of sight, and given its name when it is whole.
    """

    def __init__(self, sink: SparkTable, schema: Schema, ledger: Ledger) -> None:
        super().__init__(schema)
        self._sink, self._name = sink, ledger.name
        self._storage = Storage(sink.url)
        self._hidden = f"_headwater-{self._name}"  # readers pass over names that begin so
        self._journal = Journal.of(ledger)
        self._is_sure = False  #: that nothing is there behind what the journal has

    @property
    def committed(self) -> int:
        """The last micro-batch that is there."""
        return self._journal.committed

    def commit(self, number: int) -> None:
        """Write all of its records at once, unless they are there already."""
        if any(map(len, self._waiting)) and (self._is_sure or not self._has(number)):
            self._is_sure = False
            try:
                self._append(number)
            except Exception as error:  # Java's, or what Spark makes of it
                raise InputError(f"cannot write {self._sink}: {cause_in(str(error))}") from error
        self._journal.commit(number)
        self._is_sure = True
        self._waiting = []

    def close(self) -> None:
        """Nothing is open."""

    def _rows(self) -> DataFrame:
        from headwater.spark.session import session

        return session().createDataFrame(self._table(concat_batches(self._waiting)))

    def _table(self, batch: Batch) -> Any:
        return table_of(batch, self._schema)

    def _has(self, number: int) -> bool:
        return any(name.startswith(self._file(number)) for name in self._storage.names())

    def _append(self, number: int) -> str:
        """Write the file of a micro-batch, and return its name."""
        form, options = self._sink.form, dict(self._sink.options)
        if form == "csv":
            options.setdefault("header", "true")
        writer = self._rows().coalesce(1).write.format(_WRITTEN_AS.get(form, form)).options(**options)
        writer.mode("overwrite").save(f"{self._sink.url}/{self._hidden}")
        [part] = [name for name in self._storage.names(self._hidden) if name.startswith("part-")]
        ending = part[part.index(".") :] if form != "json" else part[part.index(".") :].replace(".txt", ".jsonl", 1)
        name = self._file(number) + ending
        self._storage.move(f"{self._hidden}/{part}", name)
        self._storage.drop(self._hidden)
        return name

    def _file(self, number: int) -> str:
        return f"part-{self._name}-{number:09d}"


class _Lines(_Files):
    """Files of lines, as the engine writes them."""

    def write(self, batch: Batch) -> Refused:
        """Take those of which lines can be made."""
        if self._sink.form == "text":
            return super().write(batch)
        _, rows, refusals = sift(batch, lambda batch: json_lines(batch, self._schema))
        self._waiting.append(rows)
        return refusals

    def _table(self, batch: Batch) -> Any:
        if self._sink.form == "text":
            lines = batch[text_column(self._schema, ())].tolist()
        else:
            lines = [line.decode() for line in json_lines(batch, self._schema)]
        return pa.table({"value": pa.array(lines, pa.string())})


class _Delta(_Files):
    """A Delta table: what counts is its log, which names the files of a micro-batch and its number in one commit."""

    def __init__(self, sink: SparkTable, schema: Schema, ledger: Ledger) -> None:
        super().__init__(sink, schema, ledger)
        self._opened: DeltaLog | None = None  #: once there are records, of whose columns Spark has a word

    @property
    def _log(self) -> DeltaLog:
        if self._opened is None:
            self._opened = DeltaLog(self._storage, f"headwater-{self._name}", self._rows().schema.json())
        return self._opened

    def _has(self, number: int) -> bool:
        self._opened = None  # what it says now, whatever went wrong before
        if self._log.committed >= number:
            return True
        for name in self._storage.names():
            if name.startswith(self._file(number)):  # of an attempt that was cut off, and nobody knows of
                self._storage.drop(name)
        return False

    def _append(self, number: int) -> str:
        name = super()._append(number)
        self._log.add(number, {name: self._storage.size(name)}, sum(map(len, self._waiting)))
        return name


_KINDS = {"json": _Lines, "text": _Lines, "delta": _Delta}
_WRITTEN_AS = {"json": "text", "delta": "parquet"}  #: forms that Spark's writers know by another name, or not
