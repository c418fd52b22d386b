"""A run on Spark: one flow is one streaming query, whose last rows the driver takes, writes and counts."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial, reduce
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Self

from headwater.data.batch import Batch
from headwater.errors import HeadwaterError, RunError
from headwater.flow.endpoints import Source
from headwater.flow.flow import Flow
from headwater.flow.ranges import Sizes
from headwater.flow.splits import has_splits, way_to_time
from headwater.flow.steps import Read
from headwater.io.transactions import notes_of
from headwater.metrics import Report, Sample
from headwater.run import outcome
from headwater.spark import sinks, sources
from headwater.spark.broadcast import broadcast
from headwater.spark.checkpoint import Checkpoint
from headwater.spark.collecting import collected
from headwater.spark.counting import RowsRead
from headwater.spark.envelope import Envelope
from headwater.spark.foreach_batch import foreach_batch
from headwater.spark.gateway import java_side
from headwater.spark.heads import Head, cut_behind, heads_of, read_by_spark
from headwater.spark.keyed import SourceStage, with_level
from headwater.spark.native import NativeTable, reads, table_in
from headwater.spark.options import SparkOptions
from headwater.spark.progress import cause_in, progress, stopped
from headwater.spark.seeds import TakenOver, waiting_in
from headwater.spark.session import session
from headwater.spark.sink_watermarks import SinkWatermarks
from headwater.spark.sources.limits import Limits
from headwater.spark.stages import cut
from headwater.spark.status_line import StatusLine, records_behind
from headwater.spark.tally import Tally
from headwater.spark.writing import Sinks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)

_PARTITIONS = "spark.sql.shuffle.partitions"
_UNSUPPORTED = "spark.sql.streaming.unsupportedOperationCheck"
_WATCH_S = 0.02  # between two looks at a run
_ASK_S = 0.2  # between two questions to Java whether it goes on, which costs both of them more than a look
_TOO_SLOW = "Python worker failed to connect back"
_LAST_S = 60.0  # for a last micro-batch to be committed
_ENOUGH_S = 15.0  # for Spark to stop when it is told to
_REAPED_S = 5.0  # until a process that does not answer any more is known to be gone


class SparkRun:
    """A flow at work on Spark, as `headwater.run.Run` has it; with a checkpoint, `stop` leaves windows open."""

    runner = "spark"

    def __init__(self, flow: Flow, options: SparkOptions) -> None:
        self.flow, self.options = read_by_spark(flow, options.meaning), options
        self.stopping = threading.Event()
        self.done = threading.Event()
        self.error: RunError | None = None
        self.samples: deque[Sample] = deque(maxlen=3600)
        self._temporary = None if options.checkpoint else Path(tempfile.mkdtemp(prefix="headwater-checkpoint-"))
        self.checkpoint = Checkpoint(options.checkpoint or self._temporary or "", meaning=options.meaning)
        self._heads: dict[str, Head] = {}  #: the first steps behind each source, as far as Spark runs them itself
        self._sources: dict[str, sources.SparkSource] = {}
        self._sinks: Sinks | None = None
        self._limits: Limits | None = None  #: of the query's sources, where a micro-batch is to take about so long
        self._batches = 0  #: micro-batches that are written
        self._first_part = 0  #: of what sinks have: the one that micro-batch 0 is
        self._restored: dict[str, int] = {}  #: records that waited for sinks when the run was taken over
        self._last_batch = -1  #: the micro-batch after which nothing follows
        self._until_ns: int | None = None  #: when, by the wall clock, enough will have been read
        self._is_through = False  #: all sources have ended, and what came of them is written
        self._aborted = False
        self._asked_s = 0.0  #: when Java was last asked whether the query goes on
        self._starts_left = 5  #: how often the query may still be started again

    def start(self) -> Self:
        """Check the flow, start Spark where none runs yet, and the query on it."""
        try:
            self._query = self._prepared()
        except BaseException as error:
            with suppress(Exception):  # what broke first is what has to be told
                self._close()
            why = self._why_not_started(error)
            if why:
                raise RunError(why) from error
            raise
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self

    def _prepared(self) -> StreamingQuery:
        """Check all that can be checked, then start the query."""
        if self.checkpoint.is_far:
            session(self.options.master, self.options.settings)  # whose file systems it is in
        # all that can be refused is refused before Java has to be started, but for that
        self.checkpoint.lock()
        cores = self.options.buckets or self.checkpoint.buckets()
        self.layout = cut(self.flow, cores or 1)
        self._heads = heads_of(self.flow, self.options.meaning)
        for step in self.flow.steps.values():
            if isinstance(step.kind, Read):
                sources.check(step.kind.source)
        sinks.check(self.flow, self.checkpoint)
        self.checkpoint.check(self.flow, cores)
        spark = session(self.options.master, self.options.settings)
        if cores is None:
            cores = int(spark.conf.get(_PARTITIONS) or 1)
        self.layout = cut_behind(self.flow, self._heads, cores)
        self.checkpoint.claim(self.flow, cores)
        self._rows_read = RowsRead(self.flow, self._heads)
        self.tally = Tally(self.flow, self.options.on_written, self._heads)
        self.tally.ended |= self._have_ended()  # which nobody says again
        takeover = self.checkpoint.takeover()
        self._sinks = self._opened_sinks(takeover)
        self.layout.stagings = self._sinks.stagings()
        self.layout.seeds = "" if takeover is None else str(self.checkpoint.seeds)
        broadcast_layout = broadcast(spark, self.layout)
        self._sizes = self.options.sizes or Sizes(spark.sparkContext.defaultParallelism)
        for index, step in enumerate(self.flow.steps.values()):
            if isinstance(step.kind, Read) and step.name in self._heads:
                self._sources[step.name] = sources.open_source(
                    spark,
                    step.name,
                    step.kind.source,
                    step_index=index,
                    checkpoint=self.checkpoint.query if self.checkpoint.is_far else self.checkpoint.folder,
                    available_now=self.options.available_now,
                    sizes=self._sizes,
                    head=self._heads[step.name],
                    beside=self._beside(self._heads[step.name]),
                    prefix=SourceStage(broadcast_layout, self.layout.source_stage(step.name)),
                    begin=None if takeover is None else takeover.offsets[step.name],
                    target_s=self.options.target_s,
                    way=way_to_time(self.flow, step.name) if has_splits(step.kind.source) else (),
                )
        shares = {name: partial(self._share, name) for name in self._sources}
        self._status_line = StatusLine(self.flow.name, shares, self._waiting)
        self._began = time.perf_counter()
        rows = reduce(lambda a, b: a.union(b), (source.rows for source in self._sources.values()))
        for level in range(1, self.layout.levels + 1):
            rows = with_level(rows, broadcast_layout, self.layout, level)
        self._begin: Callable[[], StreamingQuery] = lambda: self._started(spark, rows)
        return self._begin()

    def _source(self, name: str) -> Source:
        kind = self.flow.steps[name].kind
        assert isinstance(kind, Read)
        return kind.source

    def _beside(self, head: Head) -> dict[str, NativeTable]:
        """Return how Spark reads what a head joins with its own source."""
        tables = {name: table_in(reads(self._source(name))) for name in head.sources[1:]}
        return {name: table for name, table in tables.items() if table is not None}

    def _opened_sinks(self, takeover: TakenOver | None) -> Sinks:
        """Open all sinks; where a run was taken over, behind what it has written, and with what it had not yet."""
        folder = self.checkpoint.folder
        if takeover is not None:
            self._first_part = takeover.first
            if self.checkpoint.after() is not None and (
                takeover.waiting or takeover.new_sinks
            ):  # which begin behind that part
                self._sinks = Sinks(
                    self.flow, folder, takeover.after, takeover.new_sinks
                )  # closed by whoever closes all, should this break
                waiting = waiting_in(self.checkpoint.seeds, takeover)
                self._sinks.prepare(takeover.first - 1, _as_envelopes(waiting), self.tally)
                self.checkpoint.settle()  # from here on that part counts
                self._restored = {sink: sum(each.length for each in batches) for sink, batches in waiting.items()}
                self._sinks.close()
                self._sinks = None
        new = () if takeover is None else takeover.new_sinks
        return Sinks(
            self.flow, folder, self.checkpoint.after(), new, lambda name, part: self._hearing(name, part, takeover)
        )

    def _hearing(self, sink: str, part: int, takeover: TakenOver | None) -> SinkWatermarks:
        """Return what a sink is told of event time, behind the last part that it has."""
        begin = None if takeover is None else (takeover.first - 1, takeover.watermarks_of(sink))
        notes = notes_of(self.checkpoint.folder, sink) / "times"
        return SinkWatermarks(notes, self.layout.senders_to(sink), part, begin)

    def _started(self, spark: SparkSession, rows: DataFrame) -> StreamingQuery:
        with ExitStack() as stack:
            for name, value in self._query_settings(spark).items():
                stack.callback(spark.conf.set, name, spark.conf.get(name))
                spark.conf.set(name, value)
            writer = rows.writeStream.option("checkpointLocation", self.checkpoint.query)
            writer = writer.queryName(_free_name(spark, self.flow.name))
            foreach_batch(spark, writer, self._take)
            return writer.trigger(processingTime=self.options.every).start()

    def _query_settings(self, spark: SparkSession) -> dict[str, str]:
        """Return what this query needs of the session, which it copies when it is started."""
        partitions = int(spark.conf.get(_PARTITIONS) or 1)
        return {
            # several stages with state, one after the other, are safe as ours need none of Spark's own event time
            _UNSUPPORTED: "false",
            # a task without a bucket opens and commits state all the same
            _PARTITIONS: str(min(partitions, self.layout.buckets)),
        }

    # -- micro-batches ------------------------------------------------------------------------------------------------

    def _take(self, rows: list[Any], batch_id: int) -> None:
        """Take the rows of one micro-batch: write what is for sinks, add up what was counted."""
        envelopes, _ = collected(rows, self.layout, self.tally)
        assert self._sinks is not None
        self._sinks.wait_for_room(self.stopping)
        self._sinks.write(self._first_part + batch_id, envelopes, self.tally)
        self.checkpoint.save()
        self._batches = batch_id + 1
        if self.tally.ended == set(self._sources):
            self._last_batch = batch_id
        self._choose_limits(batch_id)

    def _choose_limits(self, batch_id: int) -> None:
        """Have the next micro-batch read as much as takes about the time that it should, where Spark hands that out."""
        target_s, query = self.options.target_s, getattr(self, "_query", None)
        if (
            target_s is None or query is None
        ):  # the first micro-batch may be done before the query is told to have begun
            return
        if self._limits is None or self._limits.query is not query:
            self._limits = Limits(query, target_s, self._sizes)
        self._limits.advance(batch_id)

    # -- life ---------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop reading; what was read is still processed. With a checkpoint to go on from, windows stay open."""
        self.stopping.set()

    def abort(self) -> None:
        """Stop at once; with a checkpoint, the next run begins with the micro-batch that was not finished."""
        self.stopping.set()
        if not self._aborted:
            self._aborted = True
            threading.Thread(target=self._insist, name="insist", daemon=True).start()

    def _insist(self) -> None:
        """End a run that Java does not let end: an answer of it may never come."""
        if self.done.wait(_ENOUGH_S):
            return
        self.error = RunError(f"Spark did not stop within {_ENOUGH_S:.0f} s, and was ended", step="")
        side = java_side()
        if side is not None:
            side.kill()
        if not self.done.wait(_ENOUGH_S):
            self._ended()

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end and return the report; None when the time was up first.

        What ended the run too early is raised, with the report.
        """
        if not self.done.wait(timeout_s):
            return None
        return outcome(self.report(), self.error)

    def _watch(self) -> None:
        """Keep samples, and end the run when its sources have ended, its time is up, or something broke."""
        for act in (self._watch_till_the_end, self._close):
            try:
                act()
            except Exception as error:
                self.error = self.error or self._understood(error)
        self._ended()

    def _ended(self) -> None:
        self._seconds = time.perf_counter() - self._began
        self.done.set()

    def _understood(self, error: Exception) -> RunError:
        """Say in our words what broke the run; mostly it has said so itself."""
        if isinstance(error, RunError):
            return error
        why_gone = self._java_gone(error)
        if isinstance(error, HeadwaterError):
            failure = RunError(str(error), step="")
        elif why_gone:
            failure = stopped(why_gone, error)
        else:
            log.debug("the run on Spark broke", exc_info=error)
            failure = RunError(f"the run on Spark broke: {cause_in(f'{type(error).__name__}: {error}')}", step="")
        failure.__cause__ = error
        return failure

    def _why_not_started(self, error: BaseException) -> str:
        """Say in one line what Java or the disk has against starting; nothing of errors that speak for themselves."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        why_gone = self._java_gone(error)
        if why_gone or not isinstance(error, Py4JError | PySparkException | OSError):
            return why_gone
        return f"Spark could not start the flow: {cause_in(f'{type(error).__name__}: {error}')}"

    def _java_gone(self, error: BaseException) -> str:
        """Say how Java ended, if that is what an error comes of."""
        from py4j.protocol import Py4JError, Py4JJavaError

        # who ends a whole group of processes ends Java too, which then says that Spark was stopped, or nothing any more
        silent = isinstance(error, Py4JError | OSError)
        if isinstance(error, Py4JJavaError):
            silent = "stopped SparkContext" in str(error)
        side = java_side()
        ended = "" if side is None else side.ended(_REAPED_S if silent else 0)
        return f"Java, in which Spark runs, is gone: {ended}; was memory short?" if ended else ""

    def _watch_till_the_end(self) -> None:
        self._last_batch = max(self._last_batch, self._last_if_ended())
        has_told = False
        next_sample = self.options.sample_s
        while self._is_active() and not self._aborted:
            time.sleep(_WATCH_S)
            elapsed = time.perf_counter() - self._began
            if elapsed >= next_sample:
                self.samples.append(self.sample())
                next_sample = elapsed + self.options.sample_s
            for source in self._sources.values():
                source.check()
                source.follow(self._query)
            if self._is_time_up():
                self.stopping.set()
            if self.stopping.is_set() and not has_told:
                has_told = True
                if self.options.checkpoint:
                    self._pause()
                    return
                for source in self._sources.values():
                    source.finish(self._until_ns if self._is_time_up() else None)
            if self._last_batch >= 0 and self.checkpoint.is_committed(self._last_batch):
                self._is_through = True
                return
        if self._aborted:
            return
        if self._starts_left and _TOO_SLOW in str(self._query.exception()):
            self._starts_left -= 1
            log.warning("Spark gave up on a Python process that took longer than 10 s to start; trying once more")
            self._query = self._begin()
            self._watch_till_the_end()
            return
        raise self._explained()

    def _is_active(self) -> bool:
        """Say whether the query goes on, as far as Java has told lately."""
        now = time.perf_counter()
        if now - self._asked_s >= _ASK_S:
            self._asked_s = now
            return bool(self._query.isActive)
        return True

    def _is_time_up(self) -> bool:
        """Say whether the sources were read for as long as they should be; starting Spark is not reading."""
        if self.options.seconds is None:
            return False
        if self._until_ns is None:
            begins_ns = [source.begun_ns() for source in self._sources.values()]
            if None in begins_ns:
                return False
            self._until_ns = max(at for at in begins_ns if at is not None) + round(self.options.seconds * 1e9)
        return time.time_ns() >= self._until_ns

    def _last_if_ended(self) -> int:
        """Return the last micro-batch of earlier runs if all sources ended with it, which they could not note; else -1."""
        return self.checkpoint.committed() if self._have_ended() == set(self._sources) else -1

    def _have_ended(self) -> set[str]:
        """Return the sources that have come to their end in earlier runs."""
        offsets = self.checkpoint.offsets(self.flow, self.checkpoint.committed())
        return {name for name, offset in offsets.items() if offset["ended"]}

    def _pause(self) -> None:
        """Read no more, and let the micro-batch that is under way come to its end."""
        for source in self._sources.values():
            source.pause()
        until = time.perf_counter() + _LAST_S
        while self._query.isActive and self._query.status["isTriggerActive"] and time.perf_counter() < until:
            time.sleep(_WATCH_S)

    def _explained(self) -> RunError:
        error = self._query.exception()
        if error is None:
            return RunError("Spark ended the query without saying why")
        return stopped(cause_in(str(error)), error)

    def _close(self) -> None:
        """Release everything, whatever else breaks on the way; the last to be opened first."""
        with ExitStack() as stack:
            stack.callback(self.checkpoint.release)
            stack.callback(self.checkpoint.save)
            if self._temporary is not None:
                stack.callback(rmtree, self._temporary, ignore_errors=True)
            if self._sinks is not None:
                stack.callback(self._close_sinks, self._sinks)
            for source in self._sources.values():
                stack.callback(source.close)
            query = getattr(self, "_query", None)
            if query is not None:
                stack.callback(query.stop)

    def _close_sinks(self, sinks: Sinks) -> None:
        """Have sinks finish what is written; a run has come to its end only then, since a bridge waits for who listens."""
        sinks.close()
        if self._is_through:
            self.checkpoint.end()

    # -- measurements -------------------------------------------------------------------------------------------------

    def sample(self) -> Sample:
        """Return all measurements as they are now."""
        for name, source in self._sources.items():
            self.tally.dropped(name, source.dropped)
        if hasattr(self, "_query"):
            self._rows_read.count(self._query)
        self.tally.read(self._rows_read.rows)
        return self.tally.sample()

    def status_line(self) -> str:
        """Say how far it has come, how fast it goes, what waits and how long it will take, in words."""
        return self._status_line.text(self.sample())

    def _waiting(self) -> int | None:
        from py4j.protocol import Py4JError

        try:
            report = self._query.lastProgress
        except (Py4JError, OSError):  # Java is gone, which ends the run
            return None
        return None if report is None else records_behind(report.sources)

    def _share(self, source: str) -> float | None:
        """Return which part of a source was read; of a checkpoint that is far away, asking would take too long."""
        if self.checkpoint.is_far:
            return None
        at = self.checkpoint.offsets(self.flow, self.checkpoint.committed()).get(source)
        return self._sources[source].share(at)

    def report(self) -> Report:
        """Return what the run has done so far, or in all when it is over."""
        last = self.sample()
        return Report(
            flow=self.flow.name,
            runner=self.runner,
            seconds=getattr(self, "_seconds", time.perf_counter() - self._began),
            last=last,
            samples=list(self.samples),
            dead_letters=self.tally.dead_letters,
            shed={f"buffer of {name!r} full": step.shed for name, step in last.steps.items() if step.shed},
            examples=self.tally.examples,
            error=None if self.error is None else str(self.error),
            extra={"spark": self._progress(last), **self._taken_over()},
        )

    def _progress(self, last: Sample) -> dict[str, Any]:
        """Return what Spark itself has to tell of the run."""
        return progress(self._query, self.layout, last, self._batches)

    def _taken_over(self) -> dict[str, Any]:
        """Return what sinks were given that was on its way when the run was taken over, as the engine's report has it."""
        return {"checkpoints": {"restored": self._restored}} if self._restored else {}


def _free_name(spark: SparkSession, flow: str) -> str:
    """Return what Spark's UI, descriptions of jobs and metrics call a query: as its flow, unless one is called so."""
    names = {query.name for query in spark.streams.active}
    number = next(number for number in count(1) if _numbered(flow, number) not in names)
    return _numbered(flow, number)


def _numbered(flow: str, number: int) -> str:
    return flow if number == 1 else f"{flow} {number}"


def _as_envelopes(waiting: dict[str, list[Batch]]) -> dict[str, list[Envelope]]:
    return {sink: [Envelope(0, 0, each) for each in batches] for sink, batches in waiting.items()}
