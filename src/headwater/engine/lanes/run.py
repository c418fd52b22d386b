"""A run in lanes: this process is lane 0, the others are forked from it; together they are one run."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Self

from headwater.cores import whole_cores
from headwater.engine.checks import check_endpoints
from headwater.engine.lanes.accounts import Accounts
from headwater.engine.lanes.child import ABORT, SAMPLE, STOP, Child, DiedError, check_that_it_can_fork, forked, live
from headwater.engine.lanes.compiling import SharedCompiling
from headwater.engine.lanes.fork_server import ForkServer
from headwater.engine.lanes.lane import Keeping, LaneRun
from headwater.engine.lanes.layout import Layout
from headwater.engine.lanes.shared_memory import shared_objects
from headwater.engine.lanes.wire import unpack
from headwater.engine.lanes.wiring import Wiring
from headwater.engine.options import Options
from headwater.engine.warm import load_kernels
from headwater.errors import HeadwaterError, RunError
from headwater.flow.flow import Flow
from headwater.metrics import Report, Sample
from headwater.operators.execution_graph import ExecutionGraph
from headwater.processes import ending
from headwater.restarts import WITHIN_S, Restarts
from headwater.run import outcome

if TYPE_CHECKING:
    from headwater.engine.lanes.checkpoint import LanesCheckpointer, Word

log = logging.getLogger(__name__)

_TO_START_AGAIN_S = (
    60.0  #: which the steps of a lane have to come back in before lanes start again: nobody waits for it
)
_ANSWER_S = 1.0  #: how long a lane may take to say how it is before it is reported as it was


class LanesRun:
    """A flow at work in several processes, as `headwater.run.Run` has it."""

    runner = "engine"
    shares = True  #: whether lanes read sources side by side where they can

    def __init__(self, layout: Layout, lanes: int, options: Options) -> None:
        self.flow, self.options, self.lanes = layout.flow, options, lanes
        self._layout = layout
        # what is spilled would come after the number of its block; and a checkpoint knows one position of a source
        shares = self.shares and options.when_full != "spill" and options.checkpoint is None
        self._wiring = Wiring(layout, lanes, share=shares)
        self._compiling = SharedCompiling(lanes)
        self._keeper: LanesCheckpointer | None = None
        self._fork_server: ForkServer | None = (
            None  #: forks lanes that may have to start again; who keeps no checkpoint forks once
        )
        self._restarts = Restarts()
        self._starting_again = False
        self._threads: list[threading.Thread] = []
        self._with_lanes: list[threading.Thread] = []  #: which are there as long as the lanes of one beginning
        self.stopping = threading.Event()
        self.done = threading.Event()
        self.error: RunError | None = None
        self.samples: deque[Sample] = deque(maxlen=3600)
        self._children: list[Child] = []
        self._accounts = Accounts(self.flow, self._wiring)
        self._news = threading.Condition()
        self._own_report: Report | None = None
        self._lost: list[int] = []  #: lanes that were killed: their last words are not to be had
        self._aborted_s: float | None = None
        self._ended_ns = 0  #: when the last of those lanes that have ended did

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Fork the lanes and start them all; what one of them cannot open is an error here."""
        load_kernels(ExecutionGraph.of(self.flow))
        check_that_it_can_fork()
        check_endpoints(self.flow, in_parts=self.options.checkpoint is not None, forks=True)
        if self.options.checkpoint is not None:
            from headwater.engine.lanes.checkpoint import LanesCheckpointer

            self._keeper = LanesCheckpointer(self.flow, self.lanes, self._wiring, self.options)
        self._wiring.connect()
        sys.stdout.flush()
        sys.stderr.flush()
        with shared_objects():
            if self._keeper is not None:
                self._fork_server = ForkServer(self._live, self._keeper.forget)
            self._fork(again=False)
        self._began_ns = time.perf_counter_ns()
        try:
            self._begin(self.options)
        except BaseException:
            self._close()
            raise
        self._watch_over_lanes()
        tasks = {"lanes": self._listen, "sample": self._sample_often}
        self._threads = [threading.Thread(target=task, name=name, daemon=True) for name, task in tasks.items()]
        for thread in self._threads:
            thread.start()
        return self

    def make_lane(self, lane: int, options: Options) -> LaneRun:
        """Make what one lane does of the run, in the process that does it."""
        return LaneRun(self.part(lane), options, self.keeping(lane), (lane, self._compiling))

    def part(self, lane: int) -> Flow:
        """Return the part of the flow that a lane runs."""
        return self._wiring.part(lane)

    def keeping(self, lane: int) -> Keeping | None:
        """Return what has a lane saved; None for a run that keeps no checkpoints."""
        return None if self._keeper is None else partial(self._keeper.of_lane, lane)

    def processes(self) -> list[int]:
        """Return the processes of all lanes."""
        return [os.getpid(), *(child.pid for child in self._children if not child.ended)]

    def join_in(self, thread: threading.Thread) -> None:
        """Start a thread that ends with the run, and is waited for with it."""
        self._threads.append(thread)
        thread.start()

    def lanes_died(self) -> None:
        """One lane has died, so all are ended, to start again: whoever has to know of it overrides this."""

    def lanes_are_back(self) -> None:
        """All lanes have started again."""

    def _fork(self, *, again: bool) -> None:
        for lane in range(1, self.lanes):
            if self._fork_server is None:
                make = partial(self.make_lane, lane, self.options)
                self._children.append(forked(lane, make, self._children))
            else:
                pid, connection = self._fork_server.fork(lane, again=again)
                self._children.append(Child(lane, pid, connection, self._fork_server.reap))

    def _live(self, lane: int, again: bool, connection: Connection) -> None:
        """Run a lane in a process that was just forked for it."""

        def make() -> LaneRun:
            assert self._keeper is not None
            if again:
                self._keeper.look_again()
            return self.make_lane(lane, self.options)

        live(connection, make)

    def _begin(self, options: Options) -> None:
        """Start lane 0, while the others start too; what one of them has to say against it is an error here."""
        own: LaneRun | None = None
        keeper = self._keeper
        try:
            first = self.make_lane(0, options)
            if first.checkpointer is not None and keeper is not None:
                first.checkpointer.say = partial(keeper.hear, 0)
            own = self._own = first.start()
            for child in self._children:
                child.check_started()
        except BaseException:
            if own is not None:
                own.abort()
            self._end_children()
            if own is not None:
                with suppress(RunError):
                    own.wait()
            raise
        if keeper is not None and self._fork_server is not None:
            self._fork_server.forget()
            keeper.begin(self._tell_of_checkpoint, self._fail)

    def _watch_over_lanes(self) -> None:
        """Start the threads that are there as long as these lanes are."""
        self._over = threading.Event()
        tasks = {"lane 0": partial(self._wait_for_own, self._own)}
        if self._keeper is not None:
            tasks["checkpoint"] = partial(self._keeper.loop, self._is_stopping, self._over)
        self._with_lanes = [threading.Thread(target=task, name=name, daemon=True) for name, task in tasks.items()]
        for thread in self._with_lanes:
            thread.start()

    def _is_stopping(self) -> bool:
        return self.stopping.is_set() or self._own.stopping.is_set()  # which stops by itself when its time is up

    def _tell_of_checkpoint(self, word: Word, number: int) -> None:
        if self._own.checkpointer is not None:
            self._own.checkpointer.tell(word, number)
        self._tell_all(f"{word} {number}".encode())

    def _close(self) -> None:
        self._wiring.close()
        if self._fork_server is not None:
            self._fork_server.close()  # it has the lock of the checkpoint open too
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
        self._own.grace_s = self.options.grace_s
        self._own.abort()

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end of all lanes and return the report of all of them; None when the time was up first."""
        if not self.done.wait(timeout_s):
            return None
        for thread in (*self._threads, *self._with_lanes):  # beside any that lives on, nobody could start lanes anew
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

    def _wait_for_own(self, own: LaneRun) -> None:
        try:
            report = own.wait()
        except RunError as error:
            report = error.report
            if not self._starting_again:
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
                    self._note_end(child)

    def _listen_to_all(self) -> None:
        while living := {child.connection: child for child in self._children if not child.ended}:
            for connection in wait(list(living), 0.2):
                assert isinstance(connection, Connection)
                child = living[connection]
                if child.ended:  # meanwhile, with all others
                    continue
                try:
                    self._hear(child, unpack(connection.recv_bytes()))
                except (EOFError, OSError):
                    self._note_death(child, child.reap())
            self._leave_behind(living.values())

    def _hear(self, child: Child, message: dict[str, Any]) -> None:
        if self._keeper is not None and message.keys() & {"saved", "unsaved", "ended"}:
            self._keeper.hear(child.lane, message)
            return
        with self._news:
            self._accounts.hear(child.lane, message)
            self._news.notify_all()
        if "report" in message:
            self._accounts.reports[child.lane] = message["report"]
            self._ended_ns = time.perf_counter_ns()  # it has yet to go, which takes it some milliseconds
            child.reap()
            self._note_end(child)
            if message["report"]["error"] is not None:
                text, step = message["report"]["error"]
                self._fail(RunError(text, step=step))

    def _note_death(self, child: Child, status: int) -> None:
        """Take note that a lane has died without a last word: what it had is lost, unless a checkpoint has it."""
        how = ending(status)
        if self._keeper is not None and self.error is None and self._aborted_s is None:
            pause_s = self._restarts.pause_s(time.monotonic())
            if pause_s is not None:
                self._start_again(child, how, pause_s)
                return
            how += f", after lanes had started again {self._restarts.most} times within {WITHIN_S:g} s"
        last = self._accounts.samples.get(child.lane)
        count = sum(step.left for step in last.steps.values()) if last is not None else 0
        self._lost.append(child.lane)
        self._note_end(child)
        if self._keeper is not None:
            self._fail(RunError(f"{child} {how}, so the run ends; run again, it goes on from its last checkpoint"))
            return
        self._fail(
            RunError(
                f"{child} {how}; what it had in hand is lost ({count:,} records when it was last heard of), so the run ends"
            )
        )

    def _start_again(self, dead: Child, how: str, pause_s: float | None) -> None:
        """Start all lanes again from the last checkpoint, since one has died."""
        log.warning("%s %s; all lanes start again from the last checkpoint, in %.1f s", dead, how, pause_s)
        stopping, self._starting_again = self._is_stopping(), True
        self.lanes_died()
        dead.ended = True
        try:
            while pause_s is not None and not self._begins_again(pause_s):
                pause_s = self._restarts.pause_s(time.monotonic())
            if pause_s is None:
                raise RunError(f"they died as they did, {self._restarts.most} times within {WITHIN_S:g} s")
        except Exception as error:
            text = error if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {error}"
            self.error = self.error or RunError(f"{dead} {how}, and lanes could not start again: {text}")
            self._lost.append(dead.lane)
        with self._news:
            self._starting_again = False
            self._end_if_all_have()
        if self._aborted_s is not None:  # while nobody could hear of it
            self.abort()
        elif stopping or self.stopping.is_set():
            self.stop()

    def _begins_again(self, pause_s: float) -> bool:
        """End what is left of the lanes, and start them again after a pause; return whether none of them died meanwhile."""
        self._end_lanes()
        time.sleep(pause_s)
        try:
            self._begin_again()
            self.lanes_are_back()
        except DiedError as error:
            log.warning("lanes start once more: %s", error)
            return False
        return True

    def _end_lanes(self) -> None:
        """End all lanes that are left, with what they have in hand: none of it is in the checkpoint."""
        self._over.set()
        for thread in self._with_lanes:
            if thread.name == "checkpoint":  # one that is being written may yet be complete
                thread.join()
        self._end_children()
        if self._aborted_s is None:
            self._own.grace_s = max(self.options.grace_s, _TO_START_AGAIN_S)
        self._own.abort()
        for thread in self._with_lanes:
            thread.join()
        if self._own.error is not None:
            raise self._own.error

    def _end_children(self) -> None:
        for child in self._children:
            if not child.ended:
                child.ended = True
                child.kill()
                child.reap()

    def _begin_again(self) -> None:
        assert self._keeper is not None
        left_s, gone_s = self.options.seconds, (time.perf_counter_ns() - self._began_ns) / 1e9
        with self._news:
            self._children = []
            self._accounts.clear()
        self._wiring.reset()
        self._keeper.look_again()
        self._fork(again=True)
        self._begin(replace(self.options, seconds=None if left_s is None else max(0.001, left_s - gone_s)))
        with self._news:
            self._own_report = None
        self._watch_over_lanes()

    def _leave_behind(self, living: Any) -> None:
        """End lanes that do not come back after an abort."""
        if self._aborted_s is None or time.monotonic() < self._aborted_s + 2 * self.options.grace_s + 1:
            return
        for child in living:
            if not child.ended:
                child.kill()
                child.reap()
                self._lost.append(child.lane)
                self._note_end(child)
                text = f"{child} did not come back within {2 * self.options.grace_s + 1:g} s of being told to stop"
                log.error(text)
                self.error = self.error or RunError(text)

    def _note_end(self, child: Child) -> None:
        with self._news:
            child.ended = True
            if child.lane not in self._accounts.reports:
                self._ended_ns = time.perf_counter_ns()
            self._news.notify_all()
            self._end_if_all_have()

    def _end_if_all_have(self) -> None:
        if self._starting_again or self._own_report is None or self.done.is_set():
            return
        if all(child.ended for child in self._children):
            self._last = self._merged()
            self._close()
            self._over.set()
            self.done.set()

    # -- measurements -------------------------------------------------------------------------------------------------

    def sample(self) -> Sample:
        """Return the measurements of all lanes together, as they are now; a lane that does not answer, as it was."""
        if self.done.is_set():
            return self._last
        with self._news:
            children = [child for child in self._children if not child.ended]
            samples = self._accounts.samples
            before = dict(samples)
            for child in children:
                child.tell(SAMPLE)
            self._news.wait_for(
                lambda: all(child.ended or samples.get(child.lane) is not before.get(child.lane) for child in children),
                _ANSWER_S,
            )
        return self._merged()

    @property
    def checkpointer(self) -> LanesCheckpointer | None:
        """What makes checkpoints of all lanes; None for a run that keeps none."""
        return self._keeper

    def _merged(self) -> Sample:
        own = self._own.sample() if self._own_report is None else self._own_report.last
        ended = self._own_report is not None and all(child.ended for child in self._children)
        at_s = ((self._ended_ns if ended else time.perf_counter_ns()) - self._began_ns) / 1e9
        return self._accounts.sample(own, self._own.backlog(), at_s)

    def _sample_often(self) -> None:
        while not self.done.wait(self.options.sample_s):
            self.samples.append(self.sample())

    def report(self) -> Report:
        """Return what all lanes have done so far, or in all when they are done."""
        own = self._own.report() if self._own_report is None else self._own_report
        error = None if self.error is None else str(self.error)
        return self._accounts.report(own, self.sample(), self.samples, error, self._extra())

    def _extra(self) -> dict[str, Any]:
        checkpoints = {} if self._keeper is None else {"checkpoints": self._keeper.to_json()}
        again = {"restarts": self._restarts.count} if self._restarts.count else {}
        return {**checkpoints, "lanes": self.lanes, **again, **({"lanes_lost": self._lost} if self._lost else {})}


def available() -> int:
    """Return how many lanes this machine has room for: one for each core that may be used."""
    return whole_cores()
