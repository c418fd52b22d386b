"""A source as Spark's stream of rows: its ranges read by Python tasks, each row a whole batch of records."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches
from headwater.data.frames import pack
from headwater.errors import HeadwaterError, RunError
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Ranges
from headwater.operators.operator import DEAD, rejection_letter
from headwater.spark.broadcast import received, send
from headwater.spark.daemon import SHARED, preload
from headwater.spark.envelope import ROW, OfSplit, Row
from headwater.spark.sources.control import EndRequest, SourceControl
from headwater.spark.sources.pace import Pace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BEFORE = 3  #: micro-batches after which it pays to read where they are planned
_ROWS_BYTES = 8 * 2**20  # handed to Spark at once
_ARROW = pa.schema([("bucket", pa.int32()), ("target", pa.int32()), ("seq", pa.int64()), ("frame", pa.binary())])


class Prefix(Protocol):
    """What happens to the records of a piece where they are read."""

    def __call__(
        self, number: int, put_out: Iterator[tuple[int, Batch]], split: OfSplit | None = None, /
    ) -> Iterator[Row]:
        """Take the piece's number in its micro-batch and what the source put out; return rows.

        That is 0 and records, DEAD and dead letters, at the very end a mark. Where it is known, `split` says of which one.
        """


def rows_of(
    spark: SparkSession,
    step: str,
    ranges: Ranges,
    begin: Offset,
    prefix: Prefix,
    control: SourceControl,
    pace: Pace | None = None,
) -> DataFrame:
    """Return the rows of a source that begins at an offset; once `control` says so, it counts as ended."""
    name = f"headwater-{re.sub(r'[^a-z0-9]+', '-', step.lower())}-{uuid4().hex[:12]}"  # which plans show
    # elsewhere the driver has other things to do; and where all is read in one piece, that may be a large one
    sizes = getattr(ranges, "sizes", None)
    may_read = spark.sparkContext.master.startswith("local") and sizes is not None and sizes.parallel > 1
    file = sent_source(spark, step, ranges, prefix)

    class Frames(DataSource):  # type: ignore[misc]  # pyspark is not typed for us
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return ROW

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  Spark's name
            return FrameReader(step, file, begin, control, pace, may_read=may_read)

    spark.dataSource.register(Frames)
    return spark.readStream.format(name).load()


def sent_source(spark: SparkSession, step: str, ranges: Ranges, prefix: Prefix) -> Path:
    """Bring a source and its stage to where tasks can read them."""
    try:
        return send(spark, (ranges, prefix))
    except Exception as error:
        raise RunError(
            f"source {step!r} cannot be read on Spark: what it uses cannot be sent to another process "
            f"({type(error).__name__}: {error})",
            step=step,
        ) from None


class Task(NamedTuple):
    """A piece of a source, the `number`-th of a micro-batch; None is one of nothing, behind which a source may end."""

    number: int
    piece: Any
    ends: bool
    split: OfSplit | None


def tasks_of(ranges: Ranges, end: Offset, pieces: Sequence[Any], *, ends: bool) -> list[Task]:
    """Return a task for each piece of what is read up to an offset; with `ends`, the last says that nothing follows."""
    splits = [None if piece is None else ranges.split_of(piece) for piece in pieces]
    has_splits = any(split is not None for split in splits)
    behind = tuple(sorted(ranges.behind(end))) if has_splits and not end["ended"] else ()
    last = len(pieces) - 1
    return [
        Task(number, piece, ends and number == last, None if split is None else OfSplit(split, behind))
        for number, (piece, split) in enumerate(zip(pieces, splits, strict=True))
    ]


class PieceReader:
    """Reads pieces of a source that was sent with its stage, in any process."""

    def __init__(self, step: str, file: Path) -> None:
        self._step, self._file = step, file

    def read(self, task: Task) -> Iterator[Any]:
        """Read one piece."""
        _, prefix = self._received()
        return in_arrow(prefix(task.number, self._put_out(task.piece, task.ends), task.split))

    @property
    def ranges(self) -> Ranges:
        """The source."""
        return self._received()[0]

    def _received(self) -> tuple[Ranges, Prefix]:
        ranges, prefix = received(self._file.name, self._file.parent)
        return ranges, prefix

    def _put_out(self, piece: Any, ends: bool) -> Iterator[tuple[int, Batch]]:
        letters: list[Batch] = []

        def reject(text: str, error: str) -> None:
            letters.append(rejection_letter(self._step, text, error))

        if piece is not None:
            for batch in self._read(piece, reject):
                if letters:
                    yield DEAD, concat_batches(letters)
                    letters.clear()
                if batch.length or batch.watermark > NO_WATERMARK:
                    yield 0, batch
        if letters:
            yield DEAD, concat_batches(letters)
        if ends:
            yield 0, Batch.of_watermark(END)

    def _read(self, piece: Any, reject: Reject) -> Iterator[Batch]:
        """Read a piece; what breaks in a user's own source is told as the engine does, with the line."""
        try:
            yield from self.ranges.batches(piece, reject)
        except HeadwaterError:
            raise
        except Exception as error:
            at = extract_tb(error.__traceback__)[-1]
            raise RunError(
                f"source {self._step!r} broke: {type(error).__name__}: {error} ({at.filename}:{at.lineno})",
                step=self._step,
            ) from error


def tasks_reader(step: str, file: Path, tasks: list[Task]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what reads tasks by their numbers, of which Spark hands each to whoever is to read it."""

    def read(tables: Iterator[Any]) -> Iterator[Any]:
        for table in tables:
            for number in table.column(0).to_pylist():
                yield from PieceReader(step, file).read(tasks[number])

    return read


class FrameReader(_SimpleStreamReaderWrapper):  # type: ignore[misc]  # the only kind that Spark asks for what it has read
    """Plans micro-batches in a process of its own, and reads their pieces in tasks.

    A micro-batch of a single piece, as they are at low rates, is read where it is planned: handing it to a task, and that to
    Python, takes longer than reading it. Not the first ones: what that needs has to be loaded there.
    """

    simple_reader = None  #: that of the kind, which Spark looks for

    def __init__(
        self, step: str, file: Path, begin: Offset, control: SourceControl, pace: Pace | None, *, may_read: bool
    ) -> None:
        self._pieces = PieceReader(step, file)
        self._begin, self._control, self._pace = begin, control, pace
        self._has_begun = False
        self._may_read = may_read  #: whether a piece may be read here at all
        self._planned = 0  #: micro-batches so far
        self._loading: Thread | None = None
        self._alone: InputPartition | None = None  #: the only piece of the last one, if it is to be read here

    @property
    def _ranges(self) -> Ranges:
        return self._pieces.ranges

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where reading begins."""
        return self._begin

    def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802
        """Return how far the next micro-batch reads."""
        if start["ended"]:
            return start
        request = self._control.request()  # before looking for records, lest some slip in between
        end = self._advanced(start, request)
        if not self._has_begun:
            self._control.begin()
            self._has_begun = True
        ended = request is not None and not request.pause and end == start
        return {**start, "ended": True} if ended else end

    def _advanced(self, start: Offset, request: EndRequest | None) -> Offset:
        if request is None:
            return self._ranges.advance(start) if self._pace is None else self._pace.advance(self._ranges, start)
        return start if request.pause else self._ranges.finish(start, request.until_ns)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return a task for each piece; the last one also says that nothing follows, when that is so."""
        ends = end["ended"] and not start["ended"]
        pieces: list[Any] = self._ranges.cut(start, end) or ([None] if ends else [])
        tasks = [InputPartition(tuple(task)) for task in tasks_of(self._ranges, end, pieces, ends=ends)]
        self._alone = tasks[0] if len(tasks) == 1 and self._can_read() else None
        return tasks

    def getCache(self, start: Offset, end: Offset) -> Iterator[Any] | None:  # noqa: N802
        """Return what was read of the micro-batch that was just planned; None where tasks are to read it."""
        return None if self._alone is None else self.read(self._alone)

    def _can_read(self) -> bool:
        """Say whether pieces can be read in this process by now; begins to load what that takes once a few were planned."""
        if not self._may_read:
            return False
        self._planned += 1
        if self._loading is None and self._planned >= _BEFORE:
            self._loading = Thread(target=self._load, name="load", daemon=True)
            self._loading.start()
        return self._loading is not None and not self._loading.is_alive()

    def _load(self) -> None:
        """Load all that reading takes, by reading nothing."""
        preload(*SHARED)
        with suppress(Exception):  # whoever reads something is told
            deque(self.read(InputPartition((0, None, False, None))), maxlen=0)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one piece."""
        return self._pieces.read(Task(*partition.value))

    def commit(self, end: Offset) -> None:
        """Take note that nothing before `end` will be asked for again."""
        self._ranges.forget(end)


def plain(target: int) -> Prefix:
    """Return a prefix that does nothing: each batch is a row for `target`, dead letters for bucket -2."""

    def rows(number: int, put_out: Iterator[tuple[int, Batch]], split: OfSplit | None = None) -> Iterator[Row]:
        for at, (port, batch) in enumerate(put_out):
            yield (-2 if port == DEAD else -1), target, (number << 32) + at, pack(batch)

    return rows


def in_arrow(rows: Iterator[Row]) -> Iterator[Any]:
    """Gather rows into Arrow batches, a few megabytes each."""
    gathered: list[Row] = []
    size = 0
    for row in rows:
        gathered.append(row)
        size += len(row[3])
        if size >= _ROWS_BYTES:
            yield _arrow(gathered)
            gathered, size = [], 0
    # an empty batch too: Spark takes the first for the sign that these are Arrow's
    yield _arrow(gathered)


def _arrow(rows: list[Row]) -> Any:
    columns = list(zip(*rows, strict=True)) or [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
