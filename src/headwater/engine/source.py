"""A source at work: a thread that reads, and what it does when the flow is full (block, spill or shed)."""

from __future__ import annotations

import logging
import tempfile
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.clock import now_ns
from headwater.data.batch import CREATED, END, NO_WATERMARK, Batch
from headwater.data.jit import answering_at_once
from headwater.engine.checkpointed_source import CheckpointedSource
from headwater.engine.coalesce import CoalescingReader
from headwater.engine.linger import Linger
from headwater.engine.pace import Pace
from headwater.errors import HeadwaterError, InputError, RunError
from headwater.flow.endpoints import (
    Reader,
    Source,
    awaits_commit,
    barrier_of,
    clock_of,
    commit,
    dropped_by,
    is_idle,
    is_inner,
    leave_halves,
    let_go,
    open_reader,
    position_of,
    resume_of,
    take_no_more,
    tells_time,
    why_dropped,
)
from headwater.flow.splits import has_splits, way_to_time
from headwater.flow.steps import Read
from headwater.operators.failures import ExitError
from headwater.operators.fault_isolation import error_text
from headwater.operators.operator import rejection_letter
from headwater.operators.queue import Delivery
from headwater.operators.task import Task

if TYPE_CHECKING:
    from headwater.engine.run import EngineRun
    from headwater.io.spill import SpillFile

log = logging.getLogger(__name__)

_PATIENCE_S = 0.1  #: how long a reader may wait before it must let us see whether the run is stopping
_COMPILING_S = 0.002  #: between two looks whether a source may be read although something is being compiled
_QUIET_S = 10.0  #: between two warnings of one source


class _Progress(NamedTuple):
    """Where a reader was behind some records, and the dead letters of what it has rejected on the way there."""

    position: Any
    letters: list[Batch]


class SourceThread(CheckpointedSource):
    """Reads one source and hands its batches to the first steps."""

    def __init__(self, run: EngineRun, task: Task) -> None:
        super().__init__(task, run.checkpointer)
        self.run = run
        self.held = 0  #: records that were read and not handed over: in hand, or spilled
        self.thread_name = f"read {task.name}"
        self._reader: Reader | None = None
        self._spilled: SpillFile | None = None
        self._dropped = 0
        kind = task.instance.step.kind
        #: whether it reads what another part of the same run makes, which ends by itself and is never shed or spilled
        self.inner = isinstance(kind, Read) and is_inner(kind.source)
        #: whether event time, and that nobody needs to wait for it, comes with the records: none is ever shed or spilled
        self._waits = self.inner or (isinstance(kind, Read) and tells_time(kind.source))
        #: whether it may be read on before what was read is acknowledged: a sender may wait for that
        self._gathers = not self.inner and isinstance(kind, Read) and resume_of(kind.source) != "sender"
        self._warned_compiling = False
        self._pace: Pace | None = None  #: of a source that loses nothing by waiting for the compiler
        self._warned_s = -_QUIET_S
        self._spilled_to: deque[_Progress] = deque()  #: where the reader was behind each batch that is spilled
        self._rejected: list[Batch] = []  #: dead letters of what was read since the last batch

    def open(self, position: Any = None) -> None:
        """Open the reader, behind a position of a run before; raises what the source has to say."""
        kind = self.task.instance.step.kind
        assert isinstance(kind, Read)
        self.handed = position
        way = (kind.way or way_to_time(self.run.flow, self.task.name)) if has_splits(kind.source) else ()
        checkpointer = self.run.checkpointer
        if checkpointer is not None and resume_of(kind.source) == "sender":
            # a sender that had to wait for checkpoints would send what it may have on its way, 20 messages, and stop
            from headwater.io.receiving import ReceivedReader

            folder = checkpointer.received_folder(self.task.instance)
            reader: Reader = ReceivedReader(self.task.name, kind.source, folder, self._reject, position, way)
        else:
            reader = self._open_reader(kind.source, position)
            if way:
                from headwater.io.aligned import align

                reader = align(self.task.name, reader, kind.source.schema, way, self._reject)
        if checkpointer is not None:
            leave_halves(reader)
        self._reader = self.run.read_through(reader, kind.source)
        if not self.inner and resume_of(kind.source) in ("position", "beginning"):
            self._pace = Pace(clocked=clock_of(self._reader) is not None)
        commit(self._reader, position_of(self._reader))  # from now on it acknowledges what it is told to

    def _open_reader(self, source: Source, position: Any) -> Reader:
        try:
            return open_reader(source, self._reject, position)
        except HeadwaterError:
            raise
        except Exception as error:  # of a source of somebody's own
            name = self.task.name
            raise RunError(f"source {name!r} cannot be opened: {error_text(error)}", step=name) from error

    def let_go(self) -> None:
        """Have a read that waits for records return; any thread may call it."""
        reader = self._reader
        if reader is not None:
            let_go(reader)

    def close(self) -> None:
        """Close the reader and remove what was spilled."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
            self._note_dropped(reader)  # since it was last read
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None

    def loop(self) -> None:
        """Read until the end, or until told to stop; then say that nothing will follow."""
        try:
            with answering_at_once():
                exhausted = self._read_all()
                self._unspill(wait=True)
                if self._reader is not None:
                    take_no_more(self._reader)
                if self.run.checkpointer is not None and not exhausted:
                    self._wait_for_the_last()  # windows stay as they are: a later run goes on with them
                    return
        except ExitError as error:  # a step that ran inline
            self.run.fail(error)
        except HeadwaterError as error:
            self.run.fail(RunError(f"source {self.task.name!r} stopped: {error}", step=self.task.name))
        except Exception as error:
            log.exception("source %s broke", self.task.name)
            self.run.fail(RunError(f"source {self.task.name!r} broke: {error_text(error)}", step=self.task.name))
        except BaseException as error:  # sys.exit(), an interrupt: nobody else would hear of it
            self.run.fail(
                ExitError(f"source {self.task.name!r} ended the run: {error_text(error)}", step=self.task.name)
            )
        self.ended = True
        self._tell_time(END)

    def _tell_time(self, watermark: int) -> None:
        """Say how far time has come, where the reader tells, or that nothing will follow."""
        deliveries: list[Delivery] = []
        self.task.router.send_watermark(watermark, deliveries)
        self.run.deliver(deliveries, time.perf_counter_ns(), 0)

    def _tell_idle(self, idle: bool) -> None:
        """Pass on that nobody needs to wait for what comes from another part, or again, before the records that say so."""
        deliveries: list[Delivery] = []
        self.task.tell_idle(idle, deliveries)
        if deliveries:
            self.run.deliver(deliveries, time.perf_counter_ns(), 0)

    def _read_all(self) -> bool:
        """Read to the end, and return whether it came; or until the run is stopping.

        Where more is there than was asked for, ask for twice as much, since large batches cost less.
        """
        reader, options = self._reader, self.run.options
        stopping = self.run.done if self.inner else self.run.stopping
        assert reader is not None
        lingers = (0.0,) if self.inner else (options.linger_s, options.busy_linger_s, options.least_linger_s)
        linger = Linger(*lingers)
        chunk, most = options.chunk, max(options.chunk, self.run.most)
        coalescing = CoalescingReader(reader) if self._gathers else None
        read_from: Reader = coalescing or reader
        committed = position_of(read_from)
        while not stopping.is_set():
            if self._is_barrier_due(final=True):  # who asks for it may be ahead of who tells that the run is stopping
                return False
            if self._to_commit >= 0 or self._is_barrier_due(final=False):
                self._heed_checkpoint()
            # one that is read in another lane may wait for what is compiled here
            compiling = (self._pace is not None or self.inner) and self.run.being_compiled() > 0
            if self._waits_for_compiler(reader, compiling):
                stopping.wait(_COMPILING_S)
                continue
            if self._pace is not None:
                chunk = min(chunk, self._pace.most(compiling) or chunk)
            called_ns = now_ns()
            batch = read_from.read(chunk, _PATIENCE_S if linger.comes_by_itself else 0.0)
            if batch is not None:
                oldest_ns = int(batch.stamps[0, CREATED]) if batch.length else 0
                linger.read(chunk, batch.length, oldest_ns, called_ns, now_ns())
                if self._pace is not None and batch.length:
                    self._pace.read((called_ns - oldest_ns) / 1e9, compiling)
                if coalescing is not None and linger.reads_on:
                    batch = coalescing.gather(batch, chunk, called_ns)
            if self._waits and not is_idle(reader):
                self._tell_idle(False)
            self._note_dropped(reader)
            place = _Progress(position_of(read_from), self._rejected)
            self._rejected = []
            if batch is None:
                self._pass(place)
                self._acknowledge(reader, place.position)
                return True
            if batch.length:
                self.held += batch.length
                self.task.count_read(batch.length)
                self._emit(batch, place)
            else:
                self._pass(place)  # it may have passed over what is no record
                self._unspill(wait=False)
            if batch.length or place.position != committed:
                committed = place.position
                self._acknowledge(reader, place.position)
            if batch.watermark > NO_WATERMARK:
                self._tell_time(batch.watermark)
            if self._waits and is_idle(reader):  # behind what came before that was said
                self._tell_idle(True)
            if self.inner and self.run.checkpointer is not None:
                self._pass_barrier(reader)
            chunk = max(options.chunk, linger.next_chunk(options.chunk, most, options.queue_records))
            pause_s = 0.0 if awaits_commit(reader) else linger.pause_s(now_ns())
            if pause_s:
                stopping.wait(pause_s)
        return False

    def _waits_for_compiler(self, reader: Reader, compiling: bool) -> bool:
        """Say whether to leave the reader alone, since what it would bring had to be processed uncompiled."""
        pace, now_s = self._pace, time.monotonic()
        if pace is None:
            return False
        idle = (compiling or pace.is_probing) and self.run.is_idle()
        if pace.waits(compiling, idle, now_s):
            if pace.is_behind and not self._warned_compiling:
                self._warned_compiling = True
                message = "source %s waits until kernels are compiled, once on this machine: %d of them"
                log.warning(message, self.task.name, self.run.being_compiled())
            return True
        if pace.starts_anew(now_s) and (start_anew := clock_of(reader)) is not None:
            start_anew()
        return False

    def compiling_s(self) -> float:
        """Return for how long its clock was stopped, since kernels were being compiled."""
        return 0.0 if self._pace is None else self._pace.stopped_s(time.monotonic())

    def _acknowledge(self, reader: Reader, position: Any) -> None:
        """Let the reader know that the flow has what was read in its own hands; with checkpoints that is not enough."""
        if self.run.checkpointer is None and not self.run.aborted:
            commit(reader, position)

    def _emit(self, batch: Batch, place: _Progress) -> None:
        """Hand a batch on, behind which the reader is at a place."""
        how = "block" if self._waits else self.run.options.when_full
        if how == "spill":
            self._unspill(wait=False)
        if not self._spilled and self._hand_over(batch, place):
            return
        if how == "block":
            self._wait_and_hand_over(batch, place)
        elif how == "shed":
            self._shed(batch)
            self._come_to(place)
        else:
            self._spill_or_wait(batch, place)

    def _hand_over(self, batch: Batch, place: _Progress) -> bool:
        """Send a batch on its way unless the source is held; once the run is aborted it stays here."""
        if self.run.aborted:
            return True
        activation = self.run.admit(self.task.instance.index, batch.length)
        if activation is None:
            return False
        deliveries = self.task.emit(batch)
        self.held -= batch.length
        self.run.emitted(activation, deliveries, int(batch.stamps[0, CREATED]))
        self.task.in_transit = []
        self._come_to(place)
        return True

    def _wait_and_hand_over(self, batch: Batch, place: _Progress) -> None:
        run, source = self.run, self.task.instance.index
        while not self._hand_over(batch, place):
            with run.lock:
                while source in run.throttle.held and not run.aborted and not self._is_barrier_due(final=False):
                    run.room.wait()
            if self._is_barrier_due(final=False):
                self._heed_checkpoint()  # what is in hand belongs to the next one

    def _shed(self, batch: Batch) -> None:
        """Drop the newest records, counted by the queue that was full."""
        with self.run.lock:
            full = self.run.throttle.reason(self.task.instance.index)
        reason = f"queue of {self.run.queue_name(full)!r} full" if full is not None else "queue full"
        self.held -= batch.length
        self._count_shed(reason, batch.length)
        self._warn("source %s sheds records: %s; %d so far", self.task.name, reason, self.run.shed[reason])

    def _note_dropped(self, reader: Reader) -> None:
        """Count what the reader itself had no room for: it came in, and went no further."""
        dropped = dropped_by(reader)
        if dropped > self._dropped:
            self.task.count_read(dropped - self._dropped)
            self._count_shed(why_dropped(reader) or f"buffer of {self.task.name!r} full", dropped - self._dropped)
            self._dropped = dropped

    def _count_shed(self, reason: str, count: int) -> None:
        self.task.counters.shed += count
        with self.run.lock:
            self.run.shed[reason] = self.run.shed.get(reason, 0) + count

    def _spill_or_wait(self, batch: Batch, place: _Progress) -> None:
        """Spill a batch; while the disk has no room for it, wait for the flow and hand over what was spilled before it."""
        while not self.run.aborted:
            try:
                self._spill(batch)
                self._spilled_to.append(place)
                return
            except InputError as error:
                self._warn("source %s waits, since it cannot spill more: %s", self.task.name, error)
            if not self._spilled:
                self._wait_and_hand_over(batch, place)
                return
            self._wait_and_hand_over(self._spilled.popleft(), self._spilled_to.popleft())

    def _warn(self, text: str, *values: object) -> None:
        """Log a warning, unless there was one a moment ago."""
        now = time.monotonic()
        if now - self._warned_s > _QUIET_S:
            self._warned_s = now
            log.warning(text, *values)

    def _spill(self, batch: Batch) -> None:
        if self._spilled is None:
            from headwater.io.spill import SpillFile

            options = self.run.options
            self._spilled = SpillFile(options.spill_dir or tempfile.gettempdir(), max_bytes=options.spill_bytes)
        self._spilled.append(batch)

    def _unspill(self, *, wait: bool) -> None:
        """Hand over what was spilled, oldest first, as far as there is room."""
        spilled = self._spilled
        while spilled and not self.run.aborted:
            if not wait and self.task.instance.index in self.run.throttle.held:
                return
            self._wait_and_hand_over(spilled.popleft(), self._spilled_to.popleft())

    def _reject(self, text: str, error: str) -> None:
        letter = rejection_letter(self.task.name, text, error)
        if self.run.checkpointer is None:
            self._send_rejected(letter)
        else:  # with the records that it came with, so that a checkpoint has both or neither
            self._rejected.append(letter)

    def _send_rejected(self, letter: Batch) -> None:
        self.run.deliver(self.task.reject(letter), time.perf_counter_ns(), now_ns())

    def _pass(self, place: _Progress) -> None:
        """Take note that the reader has come to a place without a record; behind all that is spilled."""
        if self._spilled_to:
            self._spilled_to.append(_Progress(place.position, self._spilled_to.pop().letters + place.letters))
        else:
            self._come_to(place)

    def _come_to(self, place: _Progress) -> None:
        """Take note that all up to a place was handed over, what was rejected on the way included."""
        for letter in place.letters:
            self._send_rejected(letter)
        self.handed = place.position

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def _send_barrier(self, deliveries: list[Delivery]) -> None:
        self.run.deliver(deliveries, time.perf_counter_ns(), 0)

    def _commit_reader(self, position: Any) -> None:
        if self._reader is not None:
            commit(self._reader, position)

    def _heed_checkpoint(self, *, at_end: bool = False) -> None:
        """Let the reader know what is safe; send the barrier that is asked for, behind all that was handed over."""
        self._heed_commit()
        self._heed_barrier(at_end=at_end)

    def _pass_barrier(self, reader: Reader) -> None:
        """Send on the barrier that has come from other lanes, if one has."""
        word = barrier_of(reader)
        if word is not None:
            self._barrier_due = word
            self._heed_checkpoint(at_end=True)  # of the other lanes: behind their last one nothing comes

    def _wait_for_the_last(self) -> None:
        """Send no more but the barrier of the last checkpoint."""
        run = self.run
        while not run.aborted and self._barrier_due != (self._barrier_sent, True):
            self._heed_checkpoint(at_end=True)
            with run.lock:
                if self._barrier_due == (self._barrier_sent, False) and not run.aborted:
                    run.room.wait(_PATIENCE_S)
