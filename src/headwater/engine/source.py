"""A source at work: a thread that reads, and what it does when the flow is full (block, spill or shed)."""

from __future__ import annotations

import logging
import tempfile
import time
from typing import TYPE_CHECKING

from headwater.clock import now_ns
from headwater.data.batch import CREATED, END, NO_WATERMARK, Batch
from headwater.data.jit import answering_at_once
from headwater.engine.linger import Linger
from headwater.errors import HeadwaterError, InputError, RunError
from headwater.flow.endpoints import Reader, commit, dropped_by, opened, position_of
from headwater.flow.steps import Read
from headwater.operators.broken import told
from headwater.operators.operator import rejected
from headwater.operators.queue import Delivery
from headwater.operators.task import ExitError, Task

if TYPE_CHECKING:
    from headwater.engine.run import EngineRun
    from headwater.io.spill import SpillFile

log = logging.getLogger(__name__)

_PATIENCE_S = 0.1  #: how long a reader may wait before it must let us see whether the run is stopping
_QUIET_S = 10.0  #: between two warnings of one source
_MOST = 2000  #: records that a source with a backlog hands over at once, unless `chunk` is more


class SourceThread:
    """Reads one source and hands its batches to the first steps."""

    def __init__(self, run: EngineRun, task: Task) -> None:
        self.run, self.task = run, task
        self.held = 0  #: records that were read and not handed over: in hand, or spilled
        self.thread_name = f"read {task.name}"
        self._reader: Reader | None = None
        self._spilled: SpillFile | None = None
        self._dropped = 0
        kind = task.instance.step.kind
        #: whether it reads what another part of the same run makes, which ends by itself and is never shed or spilled
        self._inner = isinstance(kind, Read) and getattr(kind.source, "inner", False)
        self._warned_s = -_QUIET_S

    def open(self) -> None:
        """Open the reader; raises what the source has to say."""
        kind = self.task.instance.step.kind
        assert isinstance(kind, Read)
        self._reader = opened(kind.source, self._reject)
        commit(self._reader, position_of(self._reader))  # from now on it acknowledges what it is told to

    def close(self) -> None:
        """Close the reader and remove what was spilled."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
            self._note_dropped(dropped_by(reader))  # since it was last read
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None

    def loop(self) -> None:
        """Read until the end, or until told to stop; then say that nothing will follow."""
        try:
            with answering_at_once():
                self._read_all()
                self._unspill(wait=True)
        except ExitError as error:  # a step that ran inline
            self.run.fail(error)
        except HeadwaterError as error:
            self.run.fail(RunError(f"source {self.task.name!r} stopped: {error}", step=self.task.name))
        except Exception as error:
            log.exception("source %s broke", self.task.name)
            self.run.fail(RunError(f"source {self.task.name!r} broke: {told(error)}", step=self.task.name))
        except BaseException as error:  # sys.exit(), an interrupt: nobody else would hear of it
            self.run.fail(ExitError(f"source {self.task.name!r} ended the run: {told(error)}", step=self.task.name))
        self._tell_time(END)

    def _tell_time(self, watermark: int) -> None:
        """Say how far time has come, where the reader tells, or that nothing will follow."""
        deliveries: list[Delivery] = []
        self.task.send_watermark(watermark, deliveries)
        self.run.deliver(deliveries, time.perf_counter_ns(), 0)

    def _read_all(self) -> None:
        """Read; where more is there than was asked for, ask for twice as much, since large batches cost less."""
        reader, options = self._reader, self.run.options
        stopping = self.run.done if self._inner else self.run.stopping
        assert reader is not None
        linger = Linger(0.0 if self._inner else options.linger_s)
        chunk, most = options.chunk, max(options.chunk, _MOST)
        while not stopping.is_set():
            called_ns = now_ns()
            batch = reader.read(chunk, _PATIENCE_S if linger.comes_by_itself else 0.0)
            self._note_dropped(dropped_by(reader))
            if batch is None:
                return
            oldest_ns = int(batch.stamps[0, CREATED]) if batch.length else 0
            linger.read(chunk, batch.length, oldest_ns, called_ns, now_ns())
            if batch.length:
                self.held += batch.length
                self.task.took(batch.length)
                self._emit(batch)
                if not self.run.aborted:  # the flow has it in its own hands
                    commit(reader, position_of(reader))
            elif self._spilled:
                self._unspill(wait=False)
            if batch.watermark > NO_WATERMARK:
                self._tell_time(batch.watermark)
            chunk = linger.next_chunk(options.chunk, most)
            pause_s = linger.pause_s(now_ns())
            if pause_s:
                stopping.wait(pause_s)

    def _emit(self, batch: Batch) -> None:
        how = "block" if self._inner else self.run.options.when_full
        if how == "spill":
            self._unspill(wait=False)
        if not self._spilled and self._hand_over(batch):
            return
        if how == "block":
            self._wait_and_hand_over(batch)
        elif how == "shed":
            self._shed(batch)
        else:
            self._spill_or_wait(batch)

    def _hand_over(self, batch: Batch) -> bool:
        """Send a batch on its way unless the source is held; once the run is aborted it stays here."""
        if self.run.aborted:
            return True
        activation = self.run.admit(self.task.instance.index, batch.length)
        if activation is None:
            return False
        made = self.task.emit(batch)
        self.held -= batch.length
        self.run.emitted(activation, made, int(batch.stamps[0, CREATED]))
        self.task.carried = []
        return True

    def _wait_and_hand_over(self, batch: Batch) -> None:
        run, source = self.run, self.task.instance.index
        while not self._hand_over(batch):
            with run.lock:
                while source in run.throttle.held and not run.aborted:
                    run.room.wait()

    def _shed(self, batch: Batch) -> None:
        """Drop the newest records, counted by the queue that was full."""
        with self.run.lock:
            full = self.run.throttle.reason(self.task.instance.index)
        reason = f"queue of {self.run.queue_name(full)!r} full" if full is not None else "queue full"
        self.held -= batch.length
        self._count_shed(reason, batch.length)
        self._warn("source %s sheds records: %s; %d so far", self.task.name, reason, self.run.shed[reason])

    def _note_dropped(self, dropped: int) -> None:
        """Count what the reader itself had no room for: it came in, and went no further."""
        if dropped > self._dropped:
            self.task.took(dropped - self._dropped)
            self._count_shed(f"buffer of {self.task.name!r} full", dropped - self._dropped)
            self._dropped = dropped

    def _count_shed(self, reason: str, count: int) -> None:
        self.task.counters.shed += count
        with self.run.lock:
            self.run.shed[reason] = self.run.shed.get(reason, 0) + count

    def _spill_or_wait(self, batch: Batch) -> None:
        """Spill a batch; while the disk has no room for it, wait for the flow and hand over what was spilled before it."""
        while not self.run.aborted:
            try:
                self._spill(batch)
                return
            except InputError as error:
                self._warn("source %s waits, since it cannot spill more: %s", self.task.name, error)
            if not self._spilled:
                self._wait_and_hand_over(batch)
                return
            self._wait_and_hand_over(self._spilled.popleft())

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
            self._wait_and_hand_over(spilled.popleft())

    def _reject(self, text: str, error: str) -> None:
        deliveries = self.task.reject(rejected(self.task.name, text, error))
        self.run.deliver(deliveries, time.perf_counter_ns(), now_ns())
