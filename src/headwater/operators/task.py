"""A task: one instance of a step at work, with its queue, its operator and its counters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches
from headwater.flow.steps import EventTime
from headwater.metrics import StepMetrics
from headwater.operators import DEAD, Operator, Output
from headwater.operators.channels import Channels, teaching_channels
from headwater.operators.counters import Counters, Latencies
from headwater.operators.execution_graph import Instance
from headwater.operators.failures import ExitError, Failures
from headwater.operators.fault_isolation import as_list, error_text
from headwater.operators.operator import Select, dead_letters
from headwater.operators.queue import Control, Delivery, Queue, QueueEntry
from headwater.operators.retry import RetryError
from headwater.operators.routing import Router
from headwater.operators.saving import Saver

log = logging.getLogger(__name__)


class Task:
    """Runs one operator on what its queue hands out; at most one worker is here at a time."""

    def __init__(self, instance: Instance, operator: Operator | None, *, measure: bool = True) -> None:
        self.instance = instance
        self.name = instance.step.name
        self.operator = operator  #: None at a source, which has a reader instead
        self.failures = Failures(instance.step, operator)
        guarded = self.failures.guarded
        #: what a batch is given to; somebody who wants to see records puts a look at them before it, see engine.peek
        self.operate = guarded.process if guarded is not None else _no_operator
        self.queue = Queue()
        self.ended = False
        #: records that a worker has taken and not done with; None when no worker is here
        self.in_hand: int | None = None
        self.activation = 0  #: how often a worker has come here
        self.given_up = 0  #: records of an activation that ended the run
        #: what has been made here and is not yet in a queue: that of a worker who never comes back is found here
        self.in_transit: list[Delivery] = []
        self.on_dead: Callable[[Batch], None] = lambda batch: None
        self._sets_time = isinstance(instance.step.kind, EventTime)
        self.channels = Channels(
            instance.channel_ports, sets_time=self._sets_time, teaching=teaching_channels(instance, operator)
        )
        self.saver = Saver(self._freeze, self.channels)
        self._has_ended = False  #: in a run before, and nothing came since: what it says at the end is said
        self._is_sink = instance.step.is_sink
        self._outputs = list(instance.step.outputs)
        self._late = operator.late if operator is not None else ()
        self.measure = measure  #: may be changed while it runs
        self._ports = instance.channel_ports
        self.watermark = NO_WATERMARK  #: how far time has come here
        self._is_idle = False  #: whether those who come after know that nobody needs to wait for this task
        self.ticked = True  #: whether the last word about the clock has come
        self.postponed: list[QueueEntry] = []  #: by the last activation: it goes back to the head of the queue
        self.resting_ns = 0  #: until when nothing is tried again
        self.router = Router(instance)
        self._retries = self.failures.attempts is not None
        #: the one place where the main output goes, when it is that simple: the way most records take
        self._straight = None if self._sets_time or self._retries else self.router.only_target()
        self.counters = Counters(time.perf_counter_ns())
        self.latencies = Latencies()
        self.state_bytes = 0  #: of its operator, as the last checkpoint has it

    def put(self, entry: QueueEntry, *, first: bool = False) -> None:
        """Add to the queue, at its end or before all others; the caller holds the lock that guards it."""
        counters = self.counters
        if counters.empty_since_ns:
            counters.t_empty_ns += max(0, entry.put_ns - counters.empty_since_ns)
            counters.empty_since_ns = 0
        if first:
            self.queue.entries.appendleft(entry)
        else:
            self.queue.entries.append(entry)

    def rest(self, now_ns: int) -> None:
        """Take note that an activation is over; the caller holds the lock that guards the queue."""
        self.counters.last_finish_ns = now_ns
        if not self.queue.entries:
            self.counters.empty_since_ns = now_ns

    def run(self, entries: list[QueueEntry]) -> tuple[list[Delivery], int]:
        """Process what was taken from the queue for one activation; return what goes where, and records out."""
        deliveries: list[Delivery] = []
        self.in_transit = deliveries
        self.in_hand = sum(entry.size for entry in entries if entry.batch is not None)
        self.activation += 1
        start = time.perf_counter_ns()
        try:
            if self._retries:
                out = self._in_turn(entries, deliveries)
                entries = entries[: len(entries) - len(self.postponed)]
            elif len(entries) == 1:
                channel, batch, watermark, _, _, _, control = entries[0]
                try:
                    out = self._one(batch, channel, watermark, deliveries)
                except RetryError as again:
                    out, entries = self._put_off(again, entries, deliveries), []
                if control is not None:
                    self._heed(control, channel, deliveries)
            else:
                out = self._several(entries, deliveries)
                if self.postponed:
                    entries = entries[: len(entries) - len(self.postponed)]
        except BaseException as error:
            raise self._fatal(error) from error
        now = time.perf_counter_ns()
        self.in_hand = None
        if self.measure:
            self.counters.activated(entries, start, now)
        return deliveries, out

    def run_inline(self, delivery: Delivery, deliveries: list[Delivery]) -> int:
        """Process what comes straight from the hands of the only sender; return the time it took, 0 when not measured.

        One in sixteen is timed and stands for the others.
        """
        _, channel, batch, watermark, count, control = delivery
        counters = self.counters
        counters.activations = number = counters.activations + 1
        self.in_hand = count if batch is not None else 0
        self.activation += 1
        start = 0 if number & 15 else time.perf_counter_ns()
        try:
            if self._retries:
                self._in_turn([delivery.entry(time.perf_counter_ns(), 0)], deliveries)
            elif batch is not None and watermark == NO_WATERMARK:
                self._pass(batch, deliveries)
            else:
                self._one(batch, channel, watermark, deliveries)
                if control is not None:
                    self._heed(control, channel, deliveries)
        except RetryError as again:
            self._put_off(again, [delivery.entry(time.perf_counter_ns(), 0)], deliveries)
        except BaseException as error:
            raise self._fatal(error) from error
        self.in_hand = None
        if not start:
            return 0
        elapsed_ns = time.perf_counter_ns() - start
        counters.inlined(elapsed_ns, count, 16)
        return elapsed_ns

    def _pass(self, batch: Batch, deliveries: list[Delivery]) -> None:
        straight, counters = self._straight, self.counters
        if straight is None or self.channels.idle or self._is_idle:
            self._one(batch, 0, NO_WATERMARK, deliveries)
            return
        if self.saver.saving is not None:
            self.saver.keep(0, batch, NO_WATERMARK)
        result = self._operate_or_fail(batch, self._ports[0])
        if type(result) is Batch:
            out = result.length
            if out:
                deliveries.append(Delivery(*straight, result, NO_WATERMARK, out))
        else:
            out = 0 if result is None else self._send(result, deliveries)
        if self.measure:
            counters.records_in += batch.length
            counters.records_out += out

    def _fatal(self, error: BaseException) -> BaseException:
        """Return what to raise for something that ends the run; what was being processed is given up."""
        self.given_up, self.in_hand = self.in_hand or 0, None
        if isinstance(error, Exception):  # a bug of ours
            return error
        return ExitError(f"step {self.name!r} ended the run: {error_text(error)}", step=self.name)

    def _in_turn(self, entries: list[QueueEntry], deliveries: list[Delivery]) -> int:
        """Run one entry after the other; from one that has to be tried again on, all are put off."""
        out = 0
        for at, entry in enumerate(entries):
            if entry.control is not None:
                self._heed(entry.control, entry.channel, deliveries, entries[at + 1 :])
                continue
            try:
                if entry.batch is not None and time.perf_counter_ns() < self.resting_ns:
                    raise RetryError(entry.batch, 0)  # somebody woke it for a word about a checkpoint
                out += self._one(entry.batch, entry.channel, entry.watermark, deliveries)
            except RetryError as again:
                out += self._put_off(again, entries[at:], deliveries)
                break
        return out

    def _put_off(self, again: RetryError, entries: list[QueueEntry], deliveries: list[Delivery]) -> int:
        """Send on what was done of the first entry; what is left of it, and all after it, waits for a pause to be over."""
        first, rest = entries[0], again.rest
        out = 0 if again.outputs is None else self._send(again.outputs, deliveries)
        if again.count and self.saver.saving is not None and first.batch is not None:
            self.saver.keep(first.channel, first.batch.slice(0, again.count), NO_WATERMARK)
        if self.measure:
            self.counters.records_in += again.count
            self.counters.records_out += out
        if again.pause_ns:
            self.resting_ns = time.perf_counter_ns() + again.pause_ns
        self.postponed = [first._replace(batch=rest, size=rest.length), *entries[1:]]
        return out

    def put_back(self) -> int:
        """Put what was put off to the head of the queue; return its size. The caller holds the lock that guards it.

        A word that came meanwhile, to save the task ahead of all that waits, stays ahead: else it would wait for as long as
        the disk is full, and all checkpoints with it.
        """
        postponed, self.postponed = self.postponed, []
        for entry in reversed([*self.queue.take_urgent(), *postponed] if postponed else []):
            self.put(entry, first=True)
        return sum(entry.size for entry in postponed)

    def _several(self, entries: list[QueueEntry], deliveries: list[Delivery]) -> int:
        """Run neighbouring entries of one input together, as one batch; large ones are not worth a copy."""
        out = done = 0  # `done` is how many entries are behind what is run now
        group: list[Batch] = []
        sender, ports = entries[0].channel, self._ports
        try:
            for at, (channel, batch, watermark, _, _, _, control) in enumerate(entries, 1):
                if group and (
                    (channel != sender if self.saver.saving is not None else ports[channel] != ports[sender])
                    or (batch is not None and (batch.length > _LARGE or len(batch.columns) != len(group[0].columns)))
                    or control is not None
                ):
                    done = at - 1
                    out += self._one(concat_batches(group), sender, NO_WATERMARK, deliveries)
                    group = []
                sender, done = channel, at
                if control is not None:
                    self._heed(control, channel, deliveries, entries[at:])
                    continue
                if batch is not None:
                    group.append(batch)
                if watermark > self.channels.watermarks[channel]:
                    # what follows may be late by this watermark, so it must not be in the same batch
                    out += self._one(concat_batches(group) if group else None, channel, watermark, deliveries)
                    group = []
            if group:
                out += self._one(concat_batches(group), sender, NO_WATERMARK, deliveries)
        except RetryError as again:  # the last of those that ran together stands for all of them
            out += self._put_off(again, entries[done - 1 :], deliveries)
        return out

    def _one(self, batch: Batch | None, channel: int, watermark: int, deliveries: list[Delivery]) -> int:
        """Run the operator on one batch and move time on; return the number of records out."""
        out = 0
        if (self.channels.idle or self._is_idle) and (batch is not None or NO_WATERMARK < watermark < END):
            self.channels.wake(channel)
            self.tell_idle(False, deliveries)
        if batch is not None:
            result = self._operate_or_fail(batch, self._ports[channel])
            if self.failures.attempts is not None:
                self.failures.attempts.over()
        if self.saver.saving is not None:
            self.saver.keep(channel, batch, watermark)
        if batch is not None:
            if type(result) is Batch and self._straight is not None:
                out = result.length
                if out:
                    to, its_channel = self._straight
                    deliveries.append(Delivery(to, its_channel, result, NO_WATERMARK, out))
            elif result is not None:
                out = self._send(result, deliveries)
                if self._is_sink and self.measure:
                    for port, part in as_list(result):
                        if port != DEAD:
                            self.latencies.arrived(part.stamps)
            elif self._is_sink:
                out = batch.length
                if self.measure:
                    self.latencies.arrived(batch.stamps)
            assert self.in_hand is not None
            self.in_hand -= batch.length
            if self.measure:
                self.counters.records_in += batch.length
                self.counters.records_out += out
        if watermark != NO_WATERMARK:
            more = self._advance(channel, watermark, deliveries)
            out += more
            if self.saver.last is not None and not self.ended:
                self._pass_on(self.saver.save_if_closed(), deliveries)
            if self.measure:
                self.counters.records_out += more
        return out

    def _operate_or_fail(self, batch: Batch, port: int) -> Output:
        self._has_ended = False
        try:
            return self.operate(batch, port)
        except Exception as error:
            try:
                return self.failures.handle(batch, port, error, self.counters)
            finally:
                self.operator = self.failures.operator  # it may have been taken back, whatever became of the batch

    def _send(self, result: Output, deliveries: list[Delivery]) -> int:
        out = 0
        for port, batch in as_list(result):
            watermark = NO_WATERMARK
            if port > 0:
                self.counters.sides[port] = self.counters.sides.get(port, 0) + batch.length
            if port == DEAD:
                if self.failures.stops and batch.length:
                    raise self.failures.stopped(batch.rows()[0]["error"])
                self.counters.dead += batch.length
                self.on_dead(batch)
            elif port in self._late:
                self.counters.late += batch.length
            else:
                out += batch.length
                if self._sets_time and port == 0 and batch.watermark > self.watermark:
                    watermark = self.watermark = batch.watermark
            self.router.send(port, batch, watermark, deliveries)
        return out

    def _advance(self, channel: int, watermark: int, deliveries: list[Delivery]) -> int:
        """Move one channel's time on and, when that moves the earliest of all channels, the operator's."""
        self.channels.advance(channel, watermark)
        if self.operator is not None and self.operator.hears:
            self.operator.hear(self._ports[channel], self.channels.earliest_of(self._ports[channel]))
        return self._move_on(deliveries)

    def _move_on(self, deliveries: list[Delivery]) -> int:
        """Let time come as far as all channels allow that somebody waits for; return the number of records out."""
        earliest = self.channels.earliest()
        if self._sets_time and earliest != END:
            return 0
        if earliest <= self.watermark:
            return 0
        self.watermark = earliest
        out, guarded = 0, self.failures.guarded
        if guarded is not None and (earliest < END or not self._has_ended):
            out = self._run_at_time(lambda: guarded.advance(earliest), deliveries)
        self.ended = earliest == END
        self.router.send_watermark(earliest, deliveries)
        return out

    def _run_at_time(self, act: Callable[[], Output], deliveries: list[Delivery]) -> int:
        """Send on what an operator has to say when time moves on; what breaks it then is nobody's record."""
        try:
            return self._send(act(), deliveries)
        except ExitError:
            raise
        except Exception as error:
            self._send([(DEAD, dead_letters(self.name, [error_text(error)], _NOTHING))], deliveries)
            return 0

    def _heed_idle(self, control: Control, channel: int, deliveries: list[Delivery]) -> None:
        """Wait no more, or again, for the time of a channel; who has nobody left to wait for is idle too."""
        if self.ended or not self.channels.heed(control, channel):
            return
        self.tell_idle(self.channels.all_quiet(), deliveries)
        more = self._move_on(deliveries)
        if self.measure:
            self.counters.records_out += more

    def tell_idle(self, idle: bool, deliveries: list[Delivery]) -> None:
        """Let those who come after know, once, that nobody needs to wait for the time of this task, or again."""
        if idle != self._is_idle:
            self._is_idle = idle
            if self.operator is not None:
                self.operator.idle(idle)
            self.router.send_control(Control("idle" if idle else "active"), deliveries, dead=False)

    def _tick(self, deliveries: list[Delivery]) -> None:
        self.ticked = True
        if self.operator is not None and not self.ended and not self.saver.saved_last:
            more = self._run_at_time(self.operator.tick, deliveries)
            if self.measure:
                self.counters.records_out += more

    def count_read(self, count: int) -> None:
        """Take note that a source has read records."""
        self.counters.records_in += count

    def emit(self, batch: Batch) -> list[Delivery]:
        """Return where a source's batch goes, which `count_read` has counted."""
        self.counters.records_out += batch.length
        deliveries: list[Delivery] = []
        self.in_transit = deliveries
        if self._straight is not None:
            deliveries.append(Delivery(*self._straight, batch, NO_WATERMARK, batch.length))
        else:
            self.router.send(0, batch, NO_WATERMARK, deliveries)
        return deliveries

    def metrics(self, now_ns: int) -> StepMetrics:
        """Return the counters as they are now; what waits, and is on its way, is for the run to say."""
        metrics = self.counters.metrics(self.name, now_ns)
        metrics.outs = self.counters.by_output(self._outputs, self._late)
        metrics.state_bytes = self.state_bytes
        return metrics

    def reject(self, letter: Batch) -> list[Delivery]:
        """Return where a dead letter goes that a source wrote."""
        deliveries: list[Delivery] = []
        self.count_read(letter.length)
        try:
            self._send([(DEAD, letter)], deliveries)
        except ExitError:
            self.given_up += letter.length
            raise
        return deliveries

    # -- checkpoints ------------------------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Return how far time has come at each channel, and the operator's state."""
        return {**self._times(), "state": b"" if self.operator is None else self.operator.snapshot()}

    def _times(self) -> dict[str, Any]:
        return {**self.channels.save(), "watermark": self.watermark, "ended": self.ended or self._has_ended}

    def _freeze(self, number: int, whole: bool) -> dict[str, Any]:
        """Return what `save` does, with state that is encoded later, and maybe only what of it has changed.

        `safe` is what a sink has yet to do for the checkpoint, by any thread; None where there is nothing.
        """
        assert self.operator is not None
        safe = self.operator.prepare(number)
        return {**self._times(), "state": self.operator.freeze(whole=whole), "safe": safe}

    def load(self, state: dict[str, Any], *, ends_again: bool = True) -> None:
        """Go on from where another task of the same step was saved; its queue is for who puts things there.

        Who sends to it says once more that it has ended, perhaps after more records, unless `ends_again` is false.
        """
        ended = bool(state.get("ended"))
        self._has_ended = self._has_ended or ended  # its operator must not say twice what it said then
        self.channels.load(state, ended=ended, ends_again=ends_again)
        self.watermark = NO_WATERMARK if ended and ends_again else state["watermark"]
        if self.operator is not None and state["state"]:
            self.operator.restore(state["state"])
            for each in state.get("changes", ()):
                self.operator.change(each)
            self.failures.restored()

    def forget(self, select: Select) -> None:
        """Drop the state of keys that other tasks of the step have."""
        assert self.operator is not None
        self.operator.forget(select)
        self.failures.restored()

    def barrier(self, number: int, *, last: bool = False) -> list[Delivery]:
        """Return the barriers that a source sends behind its records; the last if none follow."""
        deliveries: list[Delivery] = []
        self.router.send_control(Control("last" if last else "barrier", number), deliveries)
        return deliveries

    def _heed(
        self, control: Control, channel: int, deliveries: list[Delivery], behind: Sequence[QueueEntry] = ()
    ) -> None:
        """Do what a word about a checkpoint or the time asks for; `behind` it are those that were taken with it."""
        match control.kind:
            case "idle" | "active":
                self._heed_idle(control, channel, deliveries)
            case "tick":
                self._tick(deliveries)
            case "commit":
                self._commit(control.number)
            case "snapshot":
                waiting = [*behind, *list(self.queue.entries)]
                self._pass_on(self.saver.heed(control, channel, waiting), deliveries)
            case _:
                self._pass_on(self.saver.heed(control, channel, ()), deliveries)

    def _commit(self, number: int) -> None:
        assert self.operator is not None
        if self.ended:
            return  # who makes checkpoints looks after sinks that have ended, and may be at it
        try:
            self.operator.commit(number)
        except Exception as error:  # what is prepared is safe, and the next commit is one of it too
            log.warning("sink %s could not let checkpoint %d be seen: %s", self.name, number, error_text(error))

    def _pass_on(self, control: Control | None, deliveries: list[Delivery]) -> None:
        if control is not None:
            self.router.send_control(control, deliveries)

    def count_unwritten(self, records: int) -> None:
        """Take note that a sink has not written after all what it had taken."""
        if self.measure:
            self.counters.records_out -= records
        self.counters.dead += records


#: A batch of more records than this runs alone: copying it costs more than another call.
_LARGE = 256

_NOTHING = Batch({"": np.zeros(1)}, 1, np.zeros((1, 2), np.int64))


def _no_operator(batch: Batch, port: int) -> Output:
    raise AssertionError("a source processes nothing")
