"""History first: a flow over tables, as a batch job with event time as if they had streamed, and its state for a stream.

Slice after slice of the tables goes through the flow, each as one job: the state that one leaves is what the next begins
with, and what comes out is written as one part. What is left at the end is a checkpoint as another runner's would be that
was taken over: a stream goes on from it, on Spark or, through `headwater takeover`, on the engine.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from pathlib import Path
from shutil import copy2, rmtree
from typing import TYPE_CHECKING, Any, Self

from headwater.data.timestamps import micros_of_text, moment_as_text
from headwater.errors import FlowError, HeadwaterError, RunError
from headwater.flow.flow import Flow
from headwater.flow.ranges import Offset, RangeRequest, Sizes, ranges_of
from headwater.flow.steps import Read
from headwater.io.files import replace_whole
from headwater.metrics import Report, Sample
from headwater.run import outcome
from headwater.spark import sinks, sources
from headwater.spark.batched import with_level_at_once
from headwater.spark.broadcast import broadcast
from headwater.spark.checkpoint import Checkpoint
from headwater.spark.collecting import collected
from headwater.spark.executor import Executor
from headwater.spark.frames import by_source
from headwater.spark.history import PIECE, Slice, sliced, table_of
from headwater.spark.keyed import SourceStage
from headwater.spark.native import reads
from headwater.spark.options import SparkOptions
from headwater.spark.progress import cause_in, stopped
from headwater.spark.pruning import columns_used
from headwater.spark.seeds import TakenOver, write_seeds
from headwater.spark.session import session
from headwater.spark.stages import cut
from headwater.spark.tally import Tally
from headwater.spark.writing import Sinks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_PROGRESS = "progress.json"
_PIECES = 4  #: of a slice, for each core


@dataclass(slots=True)
class _Progress:
    """How far history has been read, as it is noted in the checkpoint."""

    tables: dict[str, str]
    order_by: str | None
    until: str | None  #: as it was said
    until_us: int
    buckets: int
    records: int
    slices: list[Slice]
    done: int = 0

    @classmethod
    def read(cls, folder: Path) -> _Progress | None:
        try:
            document = json.loads((folder / _PROGRESS).read_text())
        except FileNotFoundError:
            return None
        return cls(**{**document, "slices": [Slice(tuple(edges)) for edges in document["slices"]]})

    def write(self, folder: Path) -> None:
        document = {name: getattr(self, name) for name in self.__slots__}
        data = json.dumps({**document, "slices": [each.edges for each in self.slices]})
        folder.mkdir(parents=True, exist_ok=True)
        replace_whole(folder / _PROGRESS, data.encode())


@dataclass(frozen=True, slots=True)
class History:
    """What is to be read before a stream: tables by source, up to when, and by which column they are put in order."""

    tables: Mapping[str, Any]
    until: str | None = None
    order_by: str | None = None
    #: what they are, in words that a checkpoint keeps
    names: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        names = {name: "a DataFrame" if hasattr(t, "isStreaming") else str(t) for name, t in self.tables.items()}
        object.__setattr__(self, "names", names)

    @classmethod
    def of(cls, flow: Flow, tables: Any, until: str | datetime | None = None, order_by: str | None = None) -> History:
        """Check what is given against a flow: of a single source, its name is not needed."""
        by_name = by_source(flow, tables, lambda names: "say whose history a table is (NAME=TABLE)")
        if isinstance(until, datetime):
            until = until.isoformat()
        if until is not None:
            try:
                micros_of_text(until)
            except ValueError:
                raise FlowError(f"until is a moment such as 2026-11-16T08:00:00Z; got {until!r}") from None
        return cls(by_name, until, order_by)


class Backfill:
    """A flow at work on its history, as `headwater.run.Run` has it; `stop` ends behind the slice at hand."""

    runner = "spark"

    def __init__(self, flow: Flow, history: History, options: SparkOptions) -> None:
        if options.checkpoint is None:
            raise RunError("history leaves state for a stream to go on from: say where, with a checkpoint")
        self.flow, self.history, self.options = flow, history, options
        if options.meaning != "headwater":
            raise RunError("history is read by our own steps, whose state the stream goes on with: leave out meaning")
        self.checkpoint = Checkpoint(options.checkpoint, begins_with_history=True)
        if self.checkpoint.is_far:
            raise RunError(
                f"history keeps state from slice to slice where executors see it as a folder, and {self.checkpoint} is a "
                "URL; give a folder as the checkpoint"
            )
        self.stopping, self.done = threading.Event(), threading.Event()
        self.error: RunError | None = None
        self.samples: deque[Sample] = deque(maxlen=3600)
        self.tally = Tally(flow)
        self._sinks: Sinks | None = None
        self._group = f"headwater-history-{id(self)}"

    @property
    def is_done(self) -> bool:
        """Whether all of history has been read, now or by an earlier run: a stream can go on."""
        return self.checkpoint.takeover() is not None

    def start(self) -> Self:
        """Check all that can be checked, plan, and begin."""
        try:
            self._prepare()
        except BaseException:
            with suppress(Exception):
                self._close()
            raise
        threading.Thread(target=self._work, name="history", daemon=True).start()
        return self

    def _prepare(self) -> None:
        self._began = time.perf_counter()
        self.checkpoint.lock()
        buckets_now, progress = self.checkpoint.buckets(), _Progress.read(self.checkpoint.history)
        if buckets_now is not None:
            self._check_done(buckets_now)
            return
        if progress is not None:
            self._check_same(progress)
        for step in self.flow.steps.values():
            if isinstance(step.kind, Read):
                sources.check(step.kind.source)
        sinks.check(self.flow)
        cut(self.flow, 1)
        self._spark = session(self.options.master, self.options.settings)
        buckets = self.options.buckets or int(self._spark.conf.get("spark.sql.shuffle.partitions") or 1)
        self.layout = cut(self.flow, progress.buckets if progress else buckets)
        self._tables = {
            name: table_of(self._spark, table, self.flow, name, self.history.order_by)
            for name, table in self.history.tables.items()
        }
        self._progress = progress or self._plan()
        self._sinks = Sinks(self.flow, self.checkpoint.folder)
        self.layout.stagings = self._sinks.stagings()
        self._broadcast = broadcast(self._spark, self.layout)

    def _check_done(self, buckets: int) -> None:
        """Find history read by an earlier run; a checkpoint of a run that had none is refused."""
        if self.checkpoint.takeover() is None:
            raise RunError(
                f"checkpoint {self.checkpoint} is of a run that has begun without history; give another folder"
            )
        self.checkpoint.check(self.flow, buckets)

    def _check_same(self, progress: _Progress) -> None:
        then = (progress.tables, progress.until, progress.order_by)
        now = (self.history.names, self.history.until, self.history.order_by)
        if then != now:
            raise RunError(
                f"checkpoint {self.checkpoint} has begun with other history: {_describe(*then)} then, and {_describe(*now)} "
                "now; give the same, or another folder"
            )
        if self.options.buckets not in (None, progress.buckets):
            raise RunError(
                f"checkpoint {self.checkpoint} spreads keys over {progress.buckets} buckets, not {self.options.buckets}"
            )

    def _plan(self) -> _Progress:
        history, cores = self.history, self._spark.sparkContext.defaultParallelism
        until_us = None if history.until is None else micros_of_text(history.until)
        size = PIECE * _PIECES * cores if self.options.sizes is None else self.options.sizes.batch_records
        slices, records, until = sliced(self._tables, until_us, size)
        progress = _Progress(
            history.names, history.order_by, history.until, until, self.layout.buckets, records, list(slices)
        )
        states = {
            number: Executor(self.layout, stage, number).save()
            for stage in self.layout.stages
            for number in stage.numbers
        }
        write_seeds(self._states(0), states, {})
        progress.write(self.checkpoint.history)
        return progress

    # -- slices -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        for act in (self._read_all, self._close):
            try:
                act()
            except Exception as error:
                self.error = self.error or self._understood(error)
        self._seconds = time.perf_counter() - self._began
        self.done.set()

    def _read_all(self) -> None:
        if self.is_done:
            return
        self._spark.sparkContext.setJobGroup(self._group, f"history of {self.flow.name}", interruptOnCancel=True)
        progress = self._progress
        while progress.done < len(progress.slices):
            if self.stopping.is_set():
                return
            self._read(progress.slices[progress.done], progress.done)
            progress.done += 1
            progress.write(self.checkpoint.history)
            rmtree(self._states(progress.done - 1), ignore_errors=True)
            self.samples.append(self.sample())
        self._hand_over()

    def _read(self, edges: Slice, number: int) -> None:
        """Read one slice: what comes of it is in the sinks, and its state on disk, when this returns."""
        parts: list[DataFrame] = []
        for name, table in self._tables.items():
            prefix = SourceStage(self._broadcast, self.layout.source_stage(name))
            parts.append(table.slice(edges, columns_used(self.flow, name), prefix))
        rows = reduce(lambda a, b: a.union(b), parts)
        before, after = self._states(number), self._states(number + 1)
        for level in range(1, self.layout.levels + 1):
            rows = with_level_at_once(rows, self._broadcast, self.layout, level, before, keep=True)
        envelopes, states = collected(rows.toArrow().to_batches(), self.layout, self.tally)
        rmtree(after, ignore_errors=True)  # of an attempt that was cut off
        write_seeds(after, states, {})
        for path in before.glob("*"):
            if not (after / path.name).exists():
                after.mkdir(parents=True, exist_ok=True)
                copy2(path, after / path.name)
        assert self._sinks is not None
        self._sinks.write(number, envelopes, self.tally)

    def _hand_over(self) -> None:
        """Make a checkpoint of what history has left, with which the stream begins."""
        checkpoint, progress = self.checkpoint, self._progress
        last = self._states(progress.done)
        if last.is_dir():
            rmtree(checkpoint.seeds, ignore_errors=True)
            last.replace(checkpoint.seeds)
        offsets = {
            step.name: _first_of(step.kind.source) for step in self.flow.steps.values() if isinstance(step.kind, Read)
        }
        origin = f"history: {_describe(self.history.names, self._until(), None)}"
        part = len(progress.slices) - 1
        checkpoint.take_over(self.flow, progress.buckets, TakenOver(origin, offsets, part + 1, part))
        rmtree(checkpoint.history, ignore_errors=True)

    def _states(self, number: int) -> Path:
        return self.checkpoint.history / str(number)

    def _until(self) -> str:
        return str(moment_as_text(self._progress.until_us))

    # -- life ---------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop behind the slice at hand; the same command goes on from there."""
        self.stopping.set()

    def abort(self) -> None:
        """Stop at once; the next run begins with the slice at hand."""
        self.stopping.set()
        if not self.done.is_set():
            self.error = self.error or RunError("history was not read to its end", step="")
            self._spark.sparkContext.cancelJobGroup(self._group)

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end and return the report; None when the time was up first."""
        if not self.done.wait(timeout_s):
            return None
        return outcome(self.report(), self.error)

    def _understood(self, error: Exception) -> RunError:
        if isinstance(error, RunError):
            return error
        log.debug("history broke", exc_info=error)
        why = str(error) if isinstance(error, HeadwaterError) else cause_in(f"{type(error).__name__}: {error}")
        return stopped(why, error)

    def _close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self.checkpoint.release)
            if self._sinks is not None:
                stack.callback(self._sinks.close)

    def sample(self) -> Sample:
        """Return all measurements as they are now."""
        return self.tally.sample()

    def report(self) -> Report:
        """Return what was read so far, by this run."""
        seconds = getattr(self, "_seconds", time.perf_counter() - self._began)
        return Report(
            flow=self.flow.name,
            runner=self.runner,
            seconds=seconds,
            last=self.sample(),
            samples=list(self.samples),
            dead_letters=self.tally.dead_letters,
            shed={},
            examples=self.tally.examples,
            error=None if self.error is None else str(self.error),
            extra={"backfill": self._progress_told()},
        )

    def status_line(self) -> str:
        """Say how far it has come, how fast, and how long it will take, in words."""
        progress = getattr(self, "_progress", None)
        count = self.tally.sample().records_in
        if progress is None or not count:
            return f"history of {self.flow.name}"
        rate = count / (time.perf_counter() - self._began)
        eta_s = progress.records * (len(progress.slices) - progress.done) / len(progress.slices) / rate
        return f"history of {self.flow.name}: {count:,} of {progress.records:,} records, {rate:,.0f}/s, {eta_s:,.0f} s to go"

    def _progress_told(self) -> dict[str, Any]:
        progress = getattr(self, "_progress", None)
        if progress is None:  # an earlier run has read it
            return {"done": True}
        return {
            "done": progress.done == len(progress.slices),
            "records": progress.records,
            "slices": len(progress.slices),
            "slices_done": progress.done,
            "until": self._until(),
        }


def _first_of(source: Any) -> Offset:
    """Return where a stream begins that none of has been read yet."""
    ranges = None if reads(source) else ranges_of(source, RangeRequest(Sizes(1)))
    if ranges is not None:
        return ranges.start()
    return {"position": None if reads(source) else 0, "ended": False}


def _describe(tables: Mapping[str, str], until: str | None, order_by: str | None) -> str:
    text = ", ".join(f"{name}={table}" for name, table in tables.items())
    return text + (f" until {until}" if until else "") + (f" by {order_by}" if order_by else "")
