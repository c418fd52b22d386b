"""A run in lanes: this process is lane 0, the others are forked from it; together they are one run."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Self

from headwater import errors
from headwater.data.jit import service
from headwater.engine.lanes.child import ABORT, SAMPLE, STOP, Child
from headwater.engine.lanes.lane import LaneRun
from headwater.engine.lanes.layout import Layout
from headwater.engine.lanes.merged import merged_sample
from headwater.engine.lanes.wire import sample_from_wire, unpack
from headwater.engine.lanes.wiring import Wiring
from headwater.engine.options import Options
from headwater.engine.warm import load_kernels
from headwater.errors import RunError
from headwater.flow.flow import DEAD_LETTERS
from headwater.metrics import Report, Sample
from headwater.operators.execution_graph import ExecutionGraph
from headwater.run import outcome

if TYPE_CHECKING:
    from headwater.engine.lanes.checkpoint import LaneCheckpointer, LanesCheckpointer, Word

log = logging.getLogger(__name__)

_ANSWER_S = 1.0  #: how long a lane may take to say how it is before it is reported as it was
_COMPILE_S = 60.0  #: how long to wait for kernels that are being compiled before lanes go on without them
_EXAMPLES = 5


class LanesRun:
    """A flow at work in several processes, as `headwater.run.Run` has it."""

    runner = "engine"

    def __init__(self, layout: Layout, lanes: int, options: Options) -> None:
        self.flow, self.options, self.lanes = layout.flow, options, lanes
        self._layout = layout
        # what is spilled would come after the number of its block; and a checkpoint knows one position of a source
        self._wiring = Wiring(layout, lanes, share=options.when_full != "spill" and options.checkpoint is None)
        self._keeper: LanesCheckpointer | None = None
        self._threads: list[threading.Thread] = []
        self.stopping = threading.Event()
        self.done = threading.Event()
        self.error: RunError | None = None
        self.samples: deque[Sample] = deque(maxlen=3600)
        self._children: list[Child] = []
        self._said: dict[int, Sample] = {}  #: what each lane but this one last said of itself
        self._kept: dict[int, dict[str, int]] = {}  #: and how many records wait at its outlets
        self._reports: dict[int, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._own_report: Report | None = None
        self._lost: list[int] = []  #: lanes that were killed: their last words are not to be had
        self._aborted_s: float | None = None
        self._ended_ns = 0  #: when the last of those lanes that have ended did

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Fork the lanes and start them all; what one of them cannot open is an error here."""
        load_kernels(ExecutionGraph.of(self.flow))
        _check_that_it_can_fork()
        if self.options.checkpoint is not None:
            from headwater.engine.lanes.checkpoint import LanesCheckpointer

            self._keeper = LanesCheckpointer(self.flow, self.lanes, self._wiring, self.options)
        self._wiring.connect()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()  # what is there already is shared by all lanes, as long as nobody touches it
        try:
            for lane in range(1, self.lanes):
                make = partial(LaneRun, self._wiring.part(lane), self.options, self._keeping(lane))
                self._children.append(Child(lane, make, self._children))
        finally:
            gc.unfreeze()
        self._began_ns = time.perf_counter_ns()
        own: LaneRun | None = None
        try:
            first = LaneRun(self._wiring.part(0), self.options, self._keeping(0))
            if first.checkpointer is not None and self._keeper is not None:
                first.checkpointer.say = partial(self._keeper.hear, 0)
            own = self._own = first.start()  # while the others start too
            for child in self._children:
                _check_started(child)
        except BaseException:
            if own is not None:
                own.abort()
            for child in self._children:
                child.kill()
                child.reap()
            if own is not None:
                with suppress(RunError):
                    own.wait()
            self._close()
            raise
        tasks = {"lane 0": self._wait_for_own, "lanes": self._listen, "sample": self._sample_often}
        if self._keeper is not None:
            self._keeper.begin(self._tell_of_checkpoint, self._fail)
            tasks["checkpoint"] = partial(self._keeper.loop, self._is_stopping, self.done)
        self._threads = [threading.Thread(target=task, name=name, daemon=True) for name, task in tasks.items()]
        for thread in self._threads:
            thread.start()
        return self

    def _keeping(self, lane: int) -> Callable[[ExecutionGraph], LaneCheckpointer] | None:
        return None if self._keeper is None else partial(self._keeper.of_lane, lane)

    def _is_stopping(self) -> bool:
        return self.stopping.is_set() or self._own.stopping.is_set()  # which stops by itself when its time is up

    def _tell_of_checkpoint(self, word: Word, number: int) -> None:
        if self._own.checkpointer is not None:
            self._own.checkpointer.told(word, number)
        self._tell_all(f"{word} {number}".encode())

    def _close(self) -> None:
        self._wiring.close()
        if self._keeper is not None:
            self._keeper.close()

    def stop(self) -> None:
        """Stop reading; what was read is still processed, in all lanes."""
        self.stopping.set()
        self._own.stop()
        self._tell_all(STOP)

    def abort(self) -> None:
        """Stop all lanes at once; what is in queues, or between lanes, is counted as left."""
        self.stopping.set()
        if self._aborted_s is None:
            self._aborted_s = time.monotonic()
        self._tell_all(ABORT)
        self._own.abort()

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end of all lanes and return the report of all of them; None when the time was up first."""
        if not self.done.wait(timeout_s):
            return None
        for thread in self._threads:  # beside any that lives on, nobody could start lanes anew
            thread.join()
        return outcome(self.report(), self.error)

    def _fail(self, error: RunError) -> None:
        if self.error is None:
            self.error = error
        self.abort()

    def _tell_all(self, what: bytes) -> None:
        for child in self._children:
            if not child.ended:
                child.tell(what)

    # -- the lanes ----------------------------------------------------------------------------------------------------

    def _wait_for_own(self) -> None:
        try:
            report = self._own.wait()
        except RunError as error:
            report = error.report
            self._fail(error)
        with self._news:
            self._own_report = report
            self._ended_ns = time.perf_counter_ns()
            self._end_if_all_have()

    def _listen(self) -> None:
        """Hear what other lanes say, until each has said its last word."""
        try:
            self._listen_to_all()
        except Exception as error:  # a bug of ours: better to stop with a message than to wait for ever
            log.exception("lost touch with the lanes")
            self._fail(RunError(f"lost touch with the lanes: {error}"))
            for child in self._children:
                if not child.ended:
                    child.kill()
                    self._ended(child)

    def _listen_to_all(self) -> None:
        while living := {child.connection: child for child in self._children if not child.ended}:
            for connection in wait(list(living), 0.2):
                assert isinstance(connection, Connection)
                child = living[connection]
                try:
                    self._heard(child, unpack(connection.recv_bytes()))
                except (EOFError, OSError):
                    self._gone(child, child.reap())
            self._leave_behind(living.values())

    def _heard(self, child: Child, said: dict[str, Any]) -> None:
        if self._keeper is not None and said.keys() & {"saved", "unsaved", "ended"}:
            self._keeper.hear(child.lane, said)
            return
        told = said.get("sample") or said["report"]["last"]
        with self._news:
            self._said[child.lane] = sample_from_wire(told)
            self._kept[child.lane] = said["kept"]
            self._news.notify_all()
        if "report" in said:
            self._reports[child.lane] = said["report"]
            self._ended_ns = time.perf_counter_ns()  # it has yet to go, which takes it some milliseconds
            child.reap()
            self._ended(child)
            if said["report"]["error"] is not None:
                text, step = said["report"]["error"]
                self._fail(RunError(text, step=step))

    def _gone(self, child: Child, status: int) -> None:
        """Take note that a lane has died without a last word: what it had is lost, so the run cannot go on."""
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        last = self._said.get(child.lane)
        left = sum(step.left for step in last.steps.values()) if last is not None else 0
        self._lost.append(child.lane)
        self._ended(child)
        if self._keeper is not None:
            self._fail(RunError(f"{child} {how}, so the run ends; run again, it goes on from its last checkpoint"))
            return
        self._fail(
            RunError(
                f"{child} {how}; what it had in hand is lost ({left:,} records when it was last heard of), so the run ends"
            )
        )

    def _leave_behind(self, living: Any) -> None:
        """End lanes that do not come back after an abort."""
        if self._aborted_s is None or time.monotonic() < self._aborted_s + 2 * self.options.grace_s + 1:
            return
        for child in living:
            if not child.ended:
                child.kill()
                child.reap()
                self._lost.append(child.lane)
                self._ended(child)
                said = f"{child} did not come back within {2 * self.options.grace_s + 1:g} s of being told to stop"
                log.error(said)
                self.error = self.error or RunError(said)

    def _ended(self, child: Child) -> None:
        with self._news:
            child.ended = True
            if child.lane not in self._reports:
                self._ended_ns = time.perf_counter_ns()
            self._news.notify_all()
            self._end_if_all_have()

    def _end_if_all_have(self) -> None:
        if self._own_report is not None and all(child.ended for child in self._children) and not self.done.is_set():
            self._last = self._merged()
            self._close()
            self.done.set()

    # -- measurements -------------------------------------------------------------------------------------------------

    def sample(self) -> Sample:
        """Return the measurements of all lanes together, as they are now; a lane that does not answer, as it was."""
        if self.done.is_set():
            return self._last
        with self._news:
            asked = [child for child in self._children if not child.ended]
            before = dict(self._said)
            for child in asked:
                child.tell(SAMPLE)
            self._news.wait_for(
                lambda: all(child.ended or self._said.get(child.lane) is not before.get(child.lane) for child in asked),
                _ANSWER_S,
            )
        return self._merged()

    def _merged(self) -> Sample:
        own = self._own.sample() if self._own_report is None else self._own_report.last
        ended = self._own_report is not None and all(child.ended for child in self._children)
        at_s = ((self._ended_ns if ended else time.perf_counter_ns()) - self._began_ns) / 1e9
        samples = [own, *(self._said[lane] for lane in sorted(self._said))]
        return merged_sample(self.flow, samples, self._waiting(samples), at_s)

    def _waiting(self, samples: list[Sample]) -> Counter[str]:
        """Return what waits between lanes, by the step that takes it: at inlets and outlets, and in rings."""
        waiting: Counter[str] = Counter()
        for name, takers in self._wiring.takers.items():
            count = sum(sample.steps[name].left for sample in samples if name in sample.steps)
            count += sum(kept.get(name, 0) for kept in (self._own.kept(), *self._kept.values()))
            for taker in takers:
                waiting[taker] += count
        for crossing in self._wiring.crossings:
            for taker in crossing.takers:
                waiting[taker] += crossing.waiting()
        for sample in samples[1:]:
            if DEAD_LETTERS in sample.steps:
                waiting[DEAD_LETTERS] += sample.steps[DEAD_LETTERS].left
        return waiting

    def _sample_often(self) -> None:
        while not self.done.wait(self.options.sample_s):
            self.samples.append(self.sample())

    def report(self) -> Report:
        """Return what all lanes have done so far, or in all when they are done."""
        own = self._own.report() if self._own_report is None else self._own_report
        others = list(self._reports.values())
        last = self.sample()
        shed = dict(own.shed)
        for other in others:
            for reason, count in other["shed"].items():
                shed[reason] = shed.get(reason, 0) + count
        return Report(
            flow=self.flow.name,
            runner=self.runner,
            seconds=last.at_s,
            last=last,
            samples=list(self.samples),
            dead_letters=sum(step.dead_letters for step in last.steps.values()),
            shed=shed,
            left=sum(step.left for step in last.steps.values()),
            error=None if self.error is None else str(self.error),
            examples=[letter for each in (own.examples, *(o["examples"] for o in others)) for letter in each][
                :_EXAMPLES
            ],
            decisions=own.decisions + sum(other["decisions"] for other in others),
            decision_s=own.decision_s + sum(other["decision_s"] for other in others),
            extra=self._extra(own),
        )

    def _extra(self, own: Report) -> dict[str, Any]:
        kept = {} if self._keeper is None else {"checkpoints": self._keeper.to_json()}
        return {**own.extra, **kept, "lanes": self.lanes, **({"lanes_lost": self._lost} if self._lost else {})}


def _check_that_it_can_fork() -> None:
    """Wait for the compiler, and refuse to fork beside threads: what they hold at that moment stays held for ever."""
    until = time.monotonic() + _COMPILE_S
    while service.waiting() and time.monotonic() < until:
        time.sleep(0.01)
    known = (threading.current_thread(), *filter(service.is_compiling, threading.enumerate()))
    others = [thread.name for thread in threading.enumerate() if thread not in known]
    if others:
        raise RunError(
            f"lanes are forked, which is not safe beside other threads, and this process has {len(others)}: "
            f"{', '.join(others[:5])}; start the run before them, or without lanes"
        )


def _check_started(child: Child) -> None:
    """Wait until a lane has started; raise what it has to say against it."""
    try:
        said = unpack(child.connection.recv_bytes())
    except EOFError:
        raise RunError(f"{child} ended before it had started") from None
    if "refused" in said:
        name, text = said["refused"]
        kind = getattr(errors, name, RunError)
        raise kind(text)


def available() -> int:
    """Return how many lanes this machine has room for: one for each processor that may be used."""
    return len(os.sched_getaffinity(0))
