"""Where records come from on Spark: files and generators are read in parallel by ranges, all else through a log."""

from __future__ import annotations

import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from headwater.data.batch import Batch
from headwater.errors import FlowError, RunError
from headwater.flow.endpoints import Source
from headwater.io.csv import Csv
from headwater.io.generator import Generate, Replay
from headwater.io.jsonl import JsonLines
from headwater.io.kafka import Kafka
from headwater.io.memory import Items
from headwater.io.parquet import Parquet
from headwater.spark.sources.control import Control
from headwater.spark.sources.lines import LineRanges, MessageRanges, csv_ranges
from headwater.spark.sources.logged import LoggedRanges, Receiver
from headwater.spark.sources.paced import PacedRanges
from headwater.spark.sources.ranges import Offset, Ranges, Sizes
from headwater.spark.sources.rows import RowRanges
from headwater_bench.riot.sources import MessageFile, Messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from headwater.spark.sources.data_source import Prefix
    from headwater.spark.sources.kafka import Backlog


@dataclass
class Feed:
    """A source that Spark reads: its rows, and how to end it.

    `finish` lets it end where it is, as a source does that comes to its end: what was read is processed, and marks
    of the end follow. A query that is to be taken up again later is stopped without it. `close` comes last.
    """

    rows: DataFrame
    _control: Control
    _receiver: Receiver | None
    _temporary: Path | None
    _backlog: Backlog | None = None

    def begun_ns(self) -> int | None:
        """Return since when it is read, by the wall clock; None if it is not yet."""
        return self._control.begun_ns()

    def finish(self, until_ns: int | None = None) -> None:
        """Read no more, and say so in the rows; what a generator's rate made due before a moment is still read."""
        if self._receiver is not None:
            self._receiver.close()
        self._control.finish(until_ns)

    def pause(self) -> None:
        """Read no more for now: a later run goes on here."""
        self._control.pause()

    def follow(self, query: StreamingQuery) -> None:
        """End a source that cannot tell its end, once all has been read that it was to be read of."""
        if self._backlog is not None and self._backlog.is_read(query.lastProgress):
            self._backlog = None
            self.finish()

    @property
    def dropped(self) -> int:
        """Records that came in this run and had no room with who reads them."""
        return 0 if self._receiver is None else self._receiver.dropped

    def check(self) -> None:
        """Raise what the source broke with, if it did."""
        if self._receiver is not None and self._receiver.error is not None:
            raise self._receiver.error

    def close(self) -> None:
        """Stop reading, and remove what only this run needed."""
        if self._receiver is not None:
            self._receiver.close()
        self._control.clear()
        if self._temporary is not None:
            rmtree(self._temporary, ignore_errors=True)


def open_source(
    spark: SparkSession,
    step: str,
    source: Source,
    *,
    step_index: int,
    checkpoint: str | Path | None,
    available_now: bool = False,
    prefix: Prefix | None = None,
    sizes: Sizes | None = None,
    columns: tuple[str, ...] | None = None,
) -> Feed:
    """Start reading a source; raises what it has to say if it cannot be opened.

    `prefix` runs on the records where they are read; without one, rows hold the source's batches. With `available_now`,
    generated records are not waited for, and any other source ends when it has nothing for the moment. Where `columns`
    says which ones are used, a source that can leaves the others alone.
    """
    from headwater.spark.sources.data_source import plain, rows_of

    prefix = prefix or plain(step_index)
    sizes = sizes or Sizes(spark.sparkContext.defaultParallelism)
    if isinstance(source, Kafka):
        return _kafka(spark, step, source, step_index, checkpoint, prefix, sizes, until_read=available_now)
    folder, temporary = _folder(checkpoint, step_index, lasting=not _is_ranged(source))
    ranges = _ranges(source, sizes, columns, at_once=available_now)
    receiver = None
    if ranges is None:
        receiver = Receiver(step, source, folder / "log", until_idle=available_now)
        ranges = LoggedRanges(folder / "log", sizes, broadcast=not spark.sparkContext.master.startswith("local"))
    ranges.start()  # says now what is wrong with it, not in a process far away
    control = Control(folder)
    control.clear()
    return Feed(rows_of(spark, step, ranges, prefix, control), control, receiver, temporary)


def check(source: Source) -> None:
    """Raise what a source has to say, if it cannot be read, before Java has to be started."""
    if isinstance(source, MessageFile):
        MessageRanges(source, Sizes(1)).start()
    elif isinstance(source, JsonLines | Csv | Parquet) and _is_ranged(source):
        source.open(lambda text, error: None).close()
    elif isinstance(source, Kafka):
        if source.key is not None:
            raise FlowError(f"the key of {source} is for writing; records that are read have the columns of the schema")
        _check_answers(source)


def _check_answers(source: Kafka) -> None:
    """Ask whether any broker listens, for which the client would wait for minutes."""
    troubles = []
    for server in source.servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, ValueError) as error:
            troubles.append(f"{server}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise RunError(f"no broker of {source} answers ({'; '.join(troubles)}); is it running?")


def check_read(source: Source, at: Offset, whose: str) -> None:
    """Raise if a source is no longer what was read of it up to an offset of a checkpoint."""
    if isinstance(source, MessageFile):
        MessageRanges(source, Sizes(1)).check_read(at, whose)
    elif isinstance(source, JsonLines | Csv) and _is_ranged(source):
        LineRanges(source, Sizes(1)).check_read(at, whose)


def _kafka(
    spark: SparkSession,
    step: str,
    source: Kafka,
    step_index: int,
    checkpoint: str | Path | None,
    prefix: Prefix,
    sizes: Sizes,
    *,
    until_read: bool,
) -> Feed:
    from headwater.spark.sources.kafka import Backlog, kafka_rows

    folder, temporary = _folder(checkpoint, step_index, lasting=False)
    control = Control(folder)
    control.clear()
    rows = kafka_rows(spark, step, source, prefix, control, sizes)
    return Feed(rows, control, None, temporary, Backlog(source.topic) if until_read else None)


def way_of(source: Source, columns: tuple[str, ...]) -> str:
    """Return how a source, of which some columns are used, is read on Spark, in words."""
    if isinstance(source, Kafka):
        return "by Spark's own connector"
    if isinstance(source, Parquet) and len(columns) < len(source.schema):
        return f"in parallel, by ranges, {len(columns)} of {len(source.schema)} columns: {', '.join(columns)}"
    return "in parallel, by ranges" if _is_ranged(source) else "through a log, by the driver"


def _is_ranged(source: Any) -> bool:
    match source:
        case JsonLines() | Csv():
            return _is_file(source.path)
        case Parquet() | MessageFile() | Messages() | Generate():
            return True
        case Replay():  # records in memory are this process's own
            return not isinstance(source.records, Batch | Items)
    return False


def _ranges(source: Any, sizes: Sizes, columns: tuple[str, ...] | None = None, *, at_once: bool) -> Ranges | None:
    if not _is_ranged(source):
        return None
    match source:
        case JsonLines():
            source.schema  # noqa: B018  guessed here once, not in every task
            return LineRanges(source, sizes)
        case Csv():
            source.schema  # noqa: B018
            return csv_ranges(source, sizes)
        case Parquet():
            return RowRanges(source, sizes, columns)
        case MessageFile():
            return MessageRanges(source, sizes)
    return PacedRanges(source, sizes, at_once=at_once)


def _is_file(path: str | Path) -> bool:
    """Tell a file from a pipe, which has no past; what is neither is told when it is opened."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return str(path) != "-"
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _folder(checkpoint: str | Path | None, step_index: int, *, lasting: bool) -> tuple[Path, Path | None]:
    """Return the folder for what is kept of a source, and what of it must be removed at the end."""
    text = "" if checkpoint is None else str(checkpoint).removeprefix("file://")
    if "://" in text:
        if lasting:
            raise RunError(
                f"a source that cannot be read twice needs a log beside the checkpoint, and {text} is not a folder "
                "of this machine; give a folder that the driver can write"
            )
        text = ""
    temporary = None if text else Path(tempfile.mkdtemp(prefix="headwater-source-"))
    folder = (temporary or Path(text)).absolute() / "sources" / str(step_index)
    folder.mkdir(parents=True, exist_ok=True)
    return folder, temporary
