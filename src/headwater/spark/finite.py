"""A run over files that have an end, with no checkpoint to go on from: one job of Spark's after the other, and no stream.

A stream notes each micro-batch, and keeps all state, for whoever goes on later; here there is nobody. A job reads a bounded
part of the files, so that memory is bounded too, and the state that it leaves goes to the next in files.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.flow.flow import Flow
from headwater.flow.ranges import Offset, RangeRequest, Ranges, Sizes, ranges_of
from headwater.flow.steps import Read
from headwater.metrics import Sample
from headwater.spark import sinks, sources
from headwater.spark.batched import with_level_at_once
from headwater.spark.broadcast import broadcast
from headwater.spark.collecting import collected
from headwater.spark.envelope import ROW
from headwater.spark.executor import Executor
from headwater.spark.heads import cut_behind, heads_of
from headwater.spark.keyed import SourceStage
from headwater.spark.native import reads
from headwater.spark.options import SparkOptions
from headwater.spark.progress import batch_figures
from headwater.spark.running import SparkRun
from headwater.spark.seeds import seed_of, write_seeds
from headwater.spark.session import is_local, session
from headwater.spark.stages import cut
from headwater.spark.status_line import StatusLine
from headwater.spark.tally import Tally
from headwater.spark.titles import titled
from headwater.spark.writing import Sinks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_TOO_SLOW = "Python worker failed to connect back"
_JOB_BYTES = 256 * 2**20  #: that one job reads: each has its own start, and its own wait for the slower of two tasks


def fits(flow: Flow, options: SparkOptions) -> bool:
    """Say whether a flow can be run so: nobody goes on later, all that it reads is there, and all tasks are on this machine.

    State goes from job to job in a folder of it. What is wrong with a flow is left to a stream to tell.
    """
    streams = options.checkpoint, options.seconds, options.target
    if (
        options.every != SparkOptions().every
        or options.meaning != "headwater"
        or any(each is not None for each in streams)
        or not is_local(options.master, options.settings)
    ):
        return False
    try:
        partitionings = cut(flow, 1).partitionings
        timed = any(step.is_sink and partitionings[step.name].timed for step in flow.steps.values())
        return not timed and all(
            _has_end(step.kind.source) for step in flow.steps.values() if isinstance(step.kind, Read)
        )
    except HeadwaterError:
        return False


def _has_end(source: Any) -> bool:
    ranges = None if reads(source) else ranges_of(source, RangeRequest(Sizes(1)))
    return ranges is not None and ranges.has_end


class FiniteRun(SparkRun):
    """A flow at work on files; what reads it, `stop` and `abort` are those of a stream."""

    def _prepared(self) -> Any:
        """Check all that can be checked, and begin; there is no query."""
        cut(self.flow, self.options.buckets or 1)
        for step in self.flow.steps.values():
            if isinstance(step.kind, Read):
                sources.check(step.kind.source)
        sinks.check(self.flow, self.checkpoint)
        self._spark = session(self.options.master, self.options.settings)
        buckets = self.options.buckets or int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
        heads = heads_of(self.flow, self.options.meaning)
        self.layout = cut_behind(self.flow, heads, buckets)
        self.tally = Tally(self.flow, self.options.on_written, heads)
        self._sinks = Sinks(self.flow, self.checkpoint.folder)
        self.layout.stagings = self._sinks.stagings()
        self._broadcast = broadcast(self._spark, self.layout)
        self._files = {
            name: _File(self, name, heads[name].columns)
            for name, step in self.flow.steps.items()
            if isinstance(step.kind, Read)
        }
        self._status_line = StatusLine(self.flow.name, {n: f.share for n, f in self._files.items()}, lambda: None)
        self._group = f"headwater-{id(self)}"
        self._took_ms: list[int] = []
        self._began = time.perf_counter()
        return None

    def _watch_till_the_end(self) -> None:
        self._spark.sparkContext.setJobGroup(self._group, self.flow.name, interruptOnCancel=True)
        try:
            while not self._aborted and not all(file.at["ended"] for file in self._files.values()):
                began = time.perf_counter()
                self._read()
                self._took_ms.append(round(1e3 * (time.perf_counter() - began)))
                self.samples.append(self.sample())
        except Exception:
            if not self._aborted:
                raise
        finally:
            for file in self._files.values():
                file.close()

    def _read(self) -> None:
        """Read as much as a job may; what comes of it is in the sinks when this returns."""
        last = self.stopping.is_set()
        parts = [file.rows(last=last) for file in self._files.values() if not file.at["ended"]]
        ends = all(file.at["ended"] for file in self._files.values())
        before = self._states(self._batches) if self._batches else None
        rows = reduce(lambda a, b: a.union(b), parts)
        for level in range(1, self.layout.levels + 1):
            rows = with_level_at_once(rows, self._broadcast, self.layout, level, before, keep=True)
        envelopes, states = collected(self._collected(rows), self.layout, self.tally)
        if not ends:  # behind the last they only tell how large they were
            self._keep(states)
        assert self._sinks is not None
        self._sinks.write(self._batches, envelopes, self.tally)
        self._batches += 1

    def _collected(self, rows: DataFrame) -> list[Any]:
        while True:
            try:
                batches: list[Any] = rows.toArrow().to_batches()
                return batches
            except Exception as error:
                if not self._starts_left or _TOO_SLOW not in str(error):
                    raise
                self._starts_left -= 1
                log.warning("Spark gave up on a Python process that took longer than 10 s to start; trying once more")

    def _keep(self, states: dict[int, bytes]) -> None:
        """Write the state of all buckets for the next job; those that had no records have it as before."""
        for stage in self.layout.stages:
            for bucket in stage.numbers:
                if bucket not in states:
                    before = self._states(self._batches)
                    states[bucket] = (
                        seed_of(before, bucket) if self._batches else Executor(self.layout, stage, bucket).save()
                    )
        after = self._states(self._batches + 1)
        after.mkdir(parents=True, exist_ok=True)
        write_seeds(after, states, {})
        rmtree(self._states(self._batches), ignore_errors=True)

    def _states(self, number: int) -> Path:
        return self.checkpoint.folder / "states" / str(number)

    def abort(self) -> None:
        """Stop at once."""
        super().abort()
        self._spark.sparkContext.cancelJobGroup(self._group)

    def sample(self) -> Sample:
        """Return all measurements as they are now."""
        return self.tally.sample()

    def _progress(self, last: Sample) -> dict[str, Any]:
        return batch_figures(self._took_ms, self.layout, last)


class _File:
    """A source of a run, and how far it was read."""

    def __init__(self, run: FiniteRun, step: str, columns: tuple[str, ...]) -> None:
        from headwater.spark.sources.data_source import sent_source

        options, spark = run.options, run._spark
        sizes = options.sizes or Sizes(spark.sparkContext.defaultParallelism, batch_bytes=_JOB_BYTES)
        ranges = ranges_of(run._source(step), RangeRequest(sizes, columns, at_once=options.available_now))
        assert ranges is not None
        self._ranges: Ranges = ranges
        self._spark, self._step = spark, step
        self.at: Offset = ranges.start()  # says what is wrong with it
        prefix = SourceStage(run._broadcast, run.layout.source_stage(step))
        self._file, self._title = sent_source(spark, step, ranges, prefix), prefix.title
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._planned = self._ahead.submit(self._plan, self.at)  # which takes a look at all bytes

    def _plan(self, at: Offset) -> tuple[Offset, list[Any]]:
        """Return how far is read next, and in which pieces."""
        end = self._ranges.advance(at)
        return end, self._ranges.cut(at, end)

    def close(self) -> None:
        """Plan no more."""
        self._ahead.shutdown(wait=False, cancel_futures=True)

    def share(self) -> float | None:
        """Return which part of it was read."""
        return self._ranges.share(self.at)

    def rows(self, *, last: bool) -> DataFrame:
        """Return the rows of what is read next; with `last`, no more is read, and these say that it has ended."""
        from headwater.spark.sources.data_source import tasks_of, tasks_reader

        end, pieces = ({**self.at, "ended": True}, []) if last else self._planned.result()
        tasks = tasks_of(self._ranges, end, pieces or [None], ends=end["ended"])
        self.at = end
        if not end["ended"]:
            self._planned = self._ahead.submit(self._plan, end)  # while tasks read these
        make_rows = titled(tasks_reader(self._step, self._file, tasks), self._title)
        return self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(make_rows, ROW)
