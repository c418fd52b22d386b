"""A task: one instance of a step at work, with its queue, its operator and its counters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Nullable
from headwater.errors import InputError, RecordError, RunError
from headwater.flow.steps import EventTime
from headwater.flow.trouble import Retry
from headwater.metrics import StepMetrics
from headwater.operators import DEAD, Operator, Output
from headwater.operators.again import AgainError, Attempts, PartlyError
from headwater.operators.broken import as_list, told, without_the_broken
from headwater.operators.counters import Counters, Latencies
from headwater.operators.execution_graph import Instance, Route
from headwater.operators.operator import dead_letters, partitions
from headwater.operators.queue import FROM_CLOCK, Control, Delivery, Entry, Queue
from headwater.operators.undo import undo_of

log = logging.getLogger(__name__)


class ExitError(RunError):
    """A step wants the whole run to end: it called `sys.exit()`, was interrupted, or stops the run by its `on_error`."""


class Saving:
    """A task on its way into a checkpoint: its state as it was, and what was then still on its way to it.

    A task saves itself at the first word of a checkpoint and goes on at once. What comes by a channel after that and
    before the channel's own barrier was sent before its sender was saved: it is processed, and kept for the checkpoint too.
    """

    def __init__(self, number: int, saved: dict[str, Any], pending: set[int]) -> None:
        self.number, self.saved = number, saved
        self.pending = pending  #: the channels whose barriers have not come
        self.kept: list[tuple[int, Batch | None, int]] = []  #: channel, records and watermark of what came since

    def result(self) -> dict[str, Any]:
        """Return what the checkpoint has of the task, for `Task.load`."""
        return {**self.saved, "queue": [list(each) for each in self.kept]}


class Task:
    """Runs one operator on what its queue hands out; at most one worker is here at a time."""

    def __init__(self, instance: Instance, operator: Operator | None, *, measure: bool = True) -> None:
        self.instance = instance
        self.name = instance.step.name
        self.operator = operator  #: None at a source, which has a reader instead
        self._undo = undo_of(instance.step, operator)
        self._operate = (self._undo or operator).process if operator is not None else _no_operator
        self.queue = Queue()
        self.ended = False
        #: records that a worker has taken and not done with; None when no worker is here
        self.in_hand: int | None = None
        self.activation = 0  #: how often a worker has come here
        self.given_up = 0  #: records of an activation that ended the run
        #: what has been made here and is not yet in a queue: that of a worker who never comes back is found here
        self.carried: list[Delivery] = []
        self.on_dead: Callable[[Batch], None] = lambda batch: None
        self.begun = -1  #: the last checkpoint that this task has begun to save itself for
        self.saving: Saving | None = None  #: that checkpoint, while something is still on its way into it
        self.saves_whole: Callable[[int], bool] = lambda number: (
            True
        )  #: or only what changed since the checkpoint before
        self.on_saved: Callable[[int, dict[str, Any] | Exception], None] = lambda number, result: None
        self._closed: set[int] = set()  #: channels by which nothing will come: they have ended, or had the last barrier
        self._last: Control | None = None  #: the last barrier, once it came by some channel
        self._has_ended = False  #: in a run before this one: what its operator had to say at the end is said
        self._is_sink = instance.step.is_sink
        self._outputs = list(instance.step.outputs)
        self._late = operator.late if operator is not None else ()
        self.measure = measure  #: may be changed while it runs
        self._ports = instance.channel_ports
        self._watermarks = [NO_WATERMARK] * len(self._ports)
        self._watermark = NO_WATERMARK
        self._idle: set[int] = set()  #: channels whose time nobody waits for, since nothing comes by them
        self._is_idle = False  #: whether this is told to those who come after
        self.ticked = True  #: whether the last word about the clock has come
        self._sets_time = isinstance(instance.step.kind, EventTime)
        self._next: dict[int, int] = {}  #: who is next, for each route that shuffles
        policy = instance.step.on_error
        self._attempts = Attempts(policy) if isinstance(policy, Retry) and operator is not None else None
        self._stops = (policy.then if isinstance(policy, Retry) else policy) == "stop"
        self.postponed: list[Entry] = []  #: what the last activation put off: it goes back to the head of the queue
        self.resting_ns = 0  #: until when nothing is tried again
        #: the one place where the main output goes, when it is that simple: the way most records take
        self._straight = None if self._sets_time or self._attempts is not None else _only_target(instance)
        self.counters = Counters(time.perf_counter_ns())
        self.latencies = Latencies()

    def put(self, entry: Entry, *, first: bool = False) -> None:
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

    def run(self, entries: list[Entry]) -> tuple[list[Delivery], int]:
        """Process what was taken from the queue for one activation; return what goes where, and records out."""
        deliveries: list[Delivery] = []
        self.carried = deliveries
        self.in_hand = sum(entry.size for entry in entries if entry.batch is not None)
        self.activation += 1
        start = time.perf_counter_ns()
        try:
            if self._attempts is not None:
                out = self._in_turn(entries, deliveries)
                entries = entries[: len(entries) - len(self.postponed)]
            elif len(entries) == 1:
                channel, batch, watermark, _, _, _, control = entries[0]
                out = self._one(batch, channel, watermark, deliveries)
                if control is not None:
                    self._heed(control, channel, deliveries)
            else:
                out = self._several(entries, deliveries)
        except BaseException as error:
            raise self._ended(error) from error
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
            if self._attempts is not None:
                self._in_turn([delivery.entry(time.perf_counter_ns(), 0)], deliveries)
            elif batch is not None and watermark == NO_WATERMARK:
                self._pass(batch, deliveries)
            else:
                self._one(batch, channel, watermark, deliveries)
                if control is not None:
                    self._heed(control, channel, deliveries)
        except BaseException as error:
            raise self._ended(error) from error
        self.in_hand = None
        if not start:
            return 0
        elapsed_ns = time.perf_counter_ns() - start
        counters.inlined(elapsed_ns << 4, count)
        return elapsed_ns

    def _pass(self, batch: Batch, deliveries: list[Delivery]) -> None:
        straight, counters = self._straight, self.counters
        if straight is None or self._idle or self._is_idle:
            self._one(batch, 0, NO_WATERMARK, deliveries)
            return
        if self.saving is not None:
            self._keep(0, batch, NO_WATERMARK)
        try:
            result = self._operate(batch, self._ports[0])
        except Exception as error:
            result = self._broken(batch, self._ports[0], error)
        if type(result) is Batch:
            out = result.length
            if out:
                deliveries.append(Delivery(*straight, result, NO_WATERMARK, out))
        else:
            out = 0 if result is None else self._send(result, deliveries)
        if self.measure:
            counters.records_in += batch.length
            counters.records_out += out

    def _ended(self, error: BaseException) -> BaseException:
        """Return what to raise for something that ends the run; what was being processed is given up."""
        self.given_up, self.in_hand = self.in_hand or 0, None
        if isinstance(error, Exception):  # a bug of ours
            return error
        return ExitError(f"step {self.name!r} ended the run: {told(error)}", step=self.name)

    def _in_turn(self, entries: list[Entry], deliveries: list[Delivery]) -> int:
        """Run one entry after the other; from one that has to be tried again on, all are put off."""
        out = 0
        for at, entry in enumerate(entries):
            if entry.control is not None:
                self._heed(entry.control, entry.channel, deliveries, entries[at + 1 :])
                continue
            try:
                if entry.batch is not None and time.perf_counter_ns() < self.resting_ns:
                    raise AgainError(entry.batch, 0)  # somebody woke it for a word about a checkpoint
                out += self._one(entry.batch, entry.channel, entry.watermark, deliveries)
            except AgainError as again:
                out += self._put_off(again, entries[at:], deliveries)
                break
        return out

    def _put_off(self, again: AgainError, entries: list[Entry], deliveries: list[Delivery]) -> int:
        """Send on what was done of the first entry; what is left of it, and all after it, waits for a pause to be over."""
        first, rest = entries[0], again.rest
        out = 0 if again.done is None else self._send(again.done, deliveries)
        if again.count and self.saving is not None and first.batch is not None:
            self._keep(first.channel, first.batch.slice(0, again.count), NO_WATERMARK)
        if self.measure:
            self.counters.records_in += again.count
            self.counters.records_out += out
        if again.pause_ns:
            self.resting_ns = time.perf_counter_ns() + again.pause_ns
        self.postponed = [first._replace(batch=rest, size=rest.length), *entries[1:]]
        return out

    def put_back(self) -> int:
        """Put what was put off to the head of the queue; return its size. The caller holds the lock that guards it."""
        postponed, self.postponed = self.postponed, []
        for entry in reversed(postponed):
            self.put(entry, first=True)
        return sum(entry.size for entry in postponed)

    def _several(self, entries: list[Entry], deliveries: list[Delivery]) -> int:
        """Run neighbouring entries of one input together, as one batch; large ones are not worth a copy."""
        out = 0
        group: list[Batch] = []
        sender = entries[0].channel
        for at, (channel, batch, watermark, _, _, _, control) in enumerate(entries, 1):
            if group and (
                (channel != sender if self.saving is not None else self._ports[channel] != self._ports[sender])
                or (batch is not None and batch.length > _LARGE)
                or control is not None
            ):
                out += self._one(concat_batches(group), sender, NO_WATERMARK, deliveries)
                group = []
            sender = channel
            if control is not None:
                self._heed(control, channel, deliveries, entries[at:])
                continue
            if batch is not None:
                group.append(batch)
            if watermark > self._watermarks[channel]:
                # what follows may be late by this watermark, so it must not be in the same batch
                out += self._one(concat_batches(group) if group else None, channel, watermark, deliveries)
                group = []
        if group:
            out += self._one(concat_batches(group), sender, NO_WATERMARK, deliveries)
        return out

    def _one(self, batch: Batch | None, channel: int, watermark: int, deliveries: list[Delivery]) -> int:
        """Run the operator on one batch and move time on; return the number of records out."""
        out = 0
        if (self._idle or self._is_idle) and (batch is not None or NO_WATERMARK < watermark < END):
            self._wake(channel, deliveries)
        if batch is not None:
            try:
                result = self._operate(batch, self._ports[channel])
            except Exception as error:
                result = self._broken(batch, self._ports[channel], error)
            if self._attempts is not None:
                self._attempts.over()
        if self.saving is not None:
            self._keep(channel, batch, watermark)
        if batch is not None:
            if type(result) is Batch and self._straight is not None:
                out = result.length
                if out:
                    to, its_channel = self._straight
                    deliveries.append(Delivery(to, its_channel, result, NO_WATERMARK, out))
            elif result is not None:
                out = self._send(result, deliveries)
                if self._is_sink and self.measure:
                    for port, written in as_list(result):
                        if port != DEAD:
                            self.latencies.arrived(written.stamps)
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
            if self._last is not None and not self.ended:
                self._save_if_closed(deliveries)
            if self.measure:
                self.counters.records_out += more
        return out

    def _broken(self, batch: Batch, port: int, error: Exception) -> Output:
        """Set the records apart that break the step; all of them where it keeps state that cannot be taken back.

        Raises AgainError where the step's `retry` has them tried again first. A RecordError is not worth that: whatever is
        known to have no answer has none later.
        """
        assert self.operator is not None
        if self._attempts is not None and not isinstance(error, RecordError):
            partly = error if isinstance(error, PartlyError) else PartlyError(error, 0, None)
            if partly.row:
                self._attempts.over()  # those before went well, and this is another's first failure
            pause_ns = self._attempts.failed(time.perf_counter_ns())
            if pause_ns is not None:
                self.counters.retries += 1
                raise AgainError(batch.slice(partly.row, batch.length), pause_ns, partly.done, partly.row)
            if partly is error:
                return self._skip(batch, partly)
        if self._stops:
            raise self._stopped(told(error))
        if self._undo is not None:
            self.operator = self._undo.operator
            return self._found(batch, port, error)
        # what a sink raises as InputError it says of all records: halves would fare no better
        if self._is_sink and self.operator.stateless and not isinstance(error, InputError):
            return without_the_broken(lambda part: self._operate(part, port) or part, batch, error, self.name)
        if self.operator.stateless and not self._is_sink:
            return without_the_broken(lambda part: self._operate(part, port), batch, error, self.name)
        why = told(error) if batch.length == 1 or self._is_sink else f"{told(error)}; {_WHOLE}"
        return [(DEAD, dead_letters(self.name, [why] * batch.length, batch))]

    def _found(self, batch: Batch, port: int, error: Exception) -> Output:
        """Find the records that break an operator that can be taken back to before they came."""
        assert self._undo is not None
        try:
            return without_the_broken(lambda part: self._operate(part, port), batch, error, self.name)
        finally:
            self.operator = self._undo.operator

    def _skip(self, batch: Batch, partly: PartlyError) -> Output:
        """Give up one record, and go on with those behind it."""
        if self._stops:
            raise self._stopped(told(partly.cause))
        after = partly.row + 1
        letter = dead_letters(self.name, [told(partly.cause)], batch.slice(partly.row, after))
        done = [*as_list(partly.done), (DEAD, letter)]
        if after < batch.length:
            raise AgainError(batch.slice(after, batch.length), 0, done, after)
        return done

    def _stopped(self, why: str) -> ExitError:
        return ExitError(f"step {self.name!r} stopped the run, as its on_error says: {why}", step=self.name)

    def _send(self, result: Output, deliveries: list[Delivery]) -> int:
        out = 0
        for port, batch in as_list(result):
            watermark = NO_WATERMARK
            if port > 0:
                self.counters.sides[port] = self.counters.sides.get(port, 0) + batch.length
            if port == DEAD:
                if self._stops and batch.length:
                    raise self._stopped(batch.rows()[0]["error"])
                self.counters.dead += batch.length
                self.on_dead(batch)
            elif port in self._late:
                self.counters.late += batch.length
            else:
                out += batch.length
                if self._sets_time and port == 0 and batch.watermark > self._watermark:
                    watermark = self._watermark = batch.watermark
            self._send_all(port, batch, watermark, deliveries)
        return out

    def _send_all(self, port: int, batch: Batch, watermark: int, deliveries: list[Delivery]) -> None:
        for route in self.instance.routes.get(port, ()):
            if batch.length:
                self._spread(route, batch, watermark, deliveries)
            elif watermark > NO_WATERMARK:
                _send_to_each(route.targets, watermark, deliveries)

    def _spread(self, route: Route, batch: Batch, watermark: int, deliveries: list[Delivery]) -> None:
        """Send a batch along a route; instances that get no record still learn how far time has come."""
        targets = route.targets
        if len(targets) == 1 or route.grouping == "one":
            chosen = targets[:1]
        elif route.grouping == "all":
            chosen = targets
        elif route.grouping == "key":
            self._spread_by_key(route, batch, watermark, deliveries)
            return
        else:
            at = self._next.get(id(route), self.instance.number) % len(targets)
            self._next[id(route)] = at + 1
            chosen = targets[at : at + 1]
        for to, channel in chosen:
            deliveries.append(Delivery(to, channel, batch, watermark, batch.length))
        if watermark > NO_WATERMARK and len(chosen) < len(targets):
            _send_to_each([target for target in targets if target not in chosen], watermark, deliveries)

    def _spread_by_key(self, route: Route, batch: Batch, watermark: int, deliveries: list[Delivery]) -> None:
        columns = [batch.columns[name] for name in route.keys]
        plain = [column.values if isinstance(column, Nullable) else column for column in columns]
        parts = partitions(plain, len(route.targets))
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(len(route.targets) + 1)).tolist()
        for part, target in enumerate(route.targets):
            rows = order[bounds[part] : bounds[part + 1]]
            if len(rows):
                deliveries.append(Delivery(*target, batch.take(rows), watermark, len(rows)))
            elif watermark > NO_WATERMARK:
                _send_to_each([target], watermark, deliveries)

    def _advance(self, channel: int, watermark: int, deliveries: list[Delivery]) -> int:
        """Move one channel's time on and, when that moves the earliest of all channels, the operator's."""
        self._watermarks[channel] = max(self._watermarks[channel], watermark)
        if watermark == END:
            self._closed.add(channel)
            self._idle.discard(channel)
        return self._move_on(deliveries)

    def _move_on(self, deliveries: list[Delivery]) -> int:
        """Let time come as far as all channels allow that somebody waits for; return the number of records out."""
        earliest = self._earliest()
        if self._sets_time and earliest != END:
            return 0
        if earliest <= self._watermark:
            return 0
        self._watermark = earliest
        out = 0
        if self.operator is not None and not self._has_ended:
            out = self._timed(lambda: (self._undo or self.operator).advance(earliest), deliveries)  # type: ignore[union-attr]
        self.ended = earliest == END
        self.send_watermark(earliest, deliveries)
        return out

    def _timed(self, act: Callable[[], Output], deliveries: list[Delivery]) -> int:
        """Send on what an operator has to say when time moves on; what breaks it then is nobody's record."""
        try:
            return self._send(act(), deliveries)
        except ExitError:
            raise
        except Exception as error:
            self._send([(DEAD, dead_letters(self.name, [told(error)], _NOTHING))], deliveries)
            return 0

    def _earliest(self) -> int:
        """Return the time that no channel is behind, those left out that are idle; they are not at their end, though."""
        if not self._idle:
            return min(self._watermarks)
        live = (at for channel, at in enumerate(self._watermarks) if channel not in self._idle)
        earliest = min(live, default=NO_WATERMARK)
        return NO_WATERMARK if earliest == END else earliest

    def _wake(self, channel: int, deliveries: list[Delivery]) -> None:
        """Wait for the time of a channel again, since something has come by it."""
        self._idle -= set(range(len(self._ports))) if self._sets_time else {channel}
        self._tell_idle(False, deliveries)

    def _heed_idle(self, control: Control, channel: int, deliveries: list[Delivery]) -> None:
        """Wait no more, or again, for the time of a channel; who has nobody left to wait for is idle too."""
        if self.ended or (self._sets_time and control.number != FROM_CLOCK):
            return  # a step that sets time goes by what comes to it
        if control.kind == "active" or self._watermarks[channel] == END:
            self._idle.discard(channel)
        else:
            self._idle |= set(range(len(self._ports))) - self._closed if self._sets_time else {channel}
        quiet = all(at == END or number in self._idle for number, at in enumerate(self._watermarks))
        self._tell_idle(quiet and bool(self._idle), deliveries)
        more = self._move_on(deliveries)
        if self.measure:
            self.counters.records_out += more

    def _tell_idle(self, idle: bool, deliveries: list[Delivery]) -> None:
        if idle == self._is_idle:
            return
        self._is_idle = idle
        control = Control("idle" if idle else "active")
        for port, routes in self.instance.routes.items():
            if port != DEAD:
                self._send_control(control, deliveries, routes)

    def _tick(self, deliveries: list[Delivery]) -> None:
        self.ticked = True
        tick = getattr(self.operator, "tick", None)
        if tick is not None and not self.ended:
            more = self._timed(tick, deliveries)
            if self.measure:
                self.counters.records_out += more

    def send_watermark(self, watermark: int, deliveries: list[Delivery]) -> None:
        """Tell all receivers of all outputs how far time has come; dead letters only learn of the end."""
        for port, routes in self.instance.routes.items():
            if port != DEAD or watermark == END:
                for route in routes:
                    _send_to_each(route.targets, watermark, deliveries)

    def took(self, count: int) -> None:
        """Take note that a source has read records."""
        self.counters.records_in += count

    def emit(self, batch: Batch) -> list[Delivery]:
        """Return where a source's batch goes, which it `took` before."""
        self.counters.records_out += batch.length
        deliveries: list[Delivery] = []
        self.carried = deliveries
        if self._straight is not None:
            deliveries.append(Delivery(*self._straight, batch, NO_WATERMARK, batch.length))
        else:
            self._send_all(0, batch, NO_WATERMARK, deliveries)
        return deliveries

    def metrics(self, now_ns: int) -> StepMetrics:
        """Return the counters as they are now; what waits, and is on its way, is for the run to say."""
        metrics = self.counters.metrics(self.name, now_ns)
        metrics.outs = self.counters.by_output(self._outputs, self._late)
        return metrics

    def reject(self, letter: Batch) -> list[Delivery]:
        """Return where a dead letter goes that a source wrote."""
        deliveries: list[Delivery] = []
        self.took(letter.length)
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
        times = {"watermarks": list(self._watermarks), "watermark": self._watermark, "idle": sorted(self._idle)}
        return {**times, "ended": self.ended or self._has_ended}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from where another task of the same step was saved; its queue is for who puts things there."""
        self._watermarks, self._watermark = list(saved["watermarks"]), saved["watermark"]
        # whoever has ended will end once more, perhaps after it has sent what was not there then
        self._watermarks = [NO_WATERMARK if at == END else at for at in self._watermarks]
        self._idle = set() if saved.get("ended") else set(saved.get("idle", ()))
        if saved.get("ended"):
            self._has_ended = True  # its operator must not say twice what it says at the end
            self._watermark = NO_WATERMARK
        if self.operator is not None and saved["state"]:
            self.operator.restore(saved["state"])
            for each in saved.get("changes", ()):
                self.operator.change(each)
            if self._undo is not None:
                self._undo.mark()

    def save_ended(self, number: int) -> dict[str, Any]:
        """Return what a checkpoint has of a task that has ended; nobody else is here any more."""
        assert self.operator is not None
        self.operator.prepare(number)
        return {**self._frozen(number), "queue": []}

    def _frozen(self, number: int) -> dict[str, Any]:
        """Return what `save` does, with state that is encoded later, and maybe only what of it has changed."""
        assert self.operator is not None
        return {**self._times(), "state": self.operator.freeze(whole=self.saves_whole(number))}

    def barrier(self, number: int, *, last: bool = False) -> list[Delivery]:
        """Return the barriers that a source sends behind its records; the last if none follow."""
        deliveries: list[Delivery] = []
        self._send_control(Control("last" if last else "barrier", number), deliveries)
        return deliveries

    def _heed(self, control: Control, channel: int, deliveries: list[Delivery], behind: Sequence[Entry] = ()) -> None:
        """Do what a word about a checkpoint or the time asks for; `behind` it are those that were taken with it."""
        assert self.operator is not None
        if control.kind in ("idle", "active"):
            self._heed_idle(control, channel, deliveries)
            return
        if control.kind == "tick":
            self._tick(deliveries)
            return
        if control.kind == "commit":
            if self.ended:
                return  # who makes checkpoints looks after sinks that have ended, and may be at it
            try:
                self.operator.commit(control.number)
            except Exception as error:  # what is prepared is safe, and the next commit is one of it too
                log.warning("sink %s could not let checkpoint %d be seen: %s", self.name, control.number, told(error))
            return
        if control.kind == "last":
            self._closed.add(channel)
            self._last = control
            self._save_if_closed(deliveries)
            return
        if control.number > self.begun:
            self._begin_saving(control, deliveries)
        if self.saving is None or self.saving.number != control.number:
            return  # of a checkpoint that came to nothing meanwhile
        if control.kind == "snapshot":
            self._keep_waiting([*behind, *list(self.queue.entries)], control.number)
        elif control.kind == "barrier":
            self._pass_barrier(channel, control.number)

    def _keep_waiting(self, entries: list[Entry], number: int) -> None:
        """Keep at once what waits before a barrier, maybe for long; where there is none yet, it is kept in its turn."""
        barrier = Control("barrier", number)
        closed = {entry.channel for entry in entries if entry.control == barrier or entry.watermark == END}
        for entry in entries:
            if entry.channel not in closed:
                continue
            if entry.control is None:
                self._keep(entry.channel, entry.batch, entry.watermark)
            elif entry.control == barrier:
                self._pass_barrier(entry.channel, number)

    def _pass_barrier(self, channel: int, number: int) -> None:
        """Take note that a channel's barrier has come; it may be said twice."""
        if self.saving is not None and self.saving.number == number:
            self.saving.pending.discard(channel)
            self._end_saving()

    def _save_if_closed(self, deliveries: list[Delivery]) -> None:
        """Save this task for the last checkpoint of a run, once nothing will come by any channel."""
        if self._last is not None and self._last.number > self.begun and len(self._closed) == len(self._ports):
            self._begin_saving(self._last, deliveries)
            self._end_saving()

    def _begin_saving(self, control: Control, deliveries: list[Delivery]) -> None:
        assert self.operator is not None
        number = control.number
        self.begun, self.saving = number, None
        try:
            self.operator.prepare(number)
            saved = self._frozen(number)
        except Exception as error:  # told to who makes the checkpoint: this one comes to nothing
            self.on_saved(number, error)
        else:
            open_ = {channel for channel, at in enumerate(self._watermarks) if at != END}
            self.saving = Saving(number, saved, open_ - self._closed)
        on = control if control.kind == "last" else Control("barrier", number)
        self._send_control(on, deliveries)

    def _keep(self, channel: int, batch: Batch | None, watermark: int) -> None:
        """Keep what came by a channel whose barrier has not come; its end is as good as its barrier."""
        saving = self.saving
        if saving is None or channel not in saving.pending or (batch is None and watermark == NO_WATERMARK):
            return
        saving.kept.append((channel, batch, watermark))
        if watermark == END:
            saving.pending.discard(channel)
            self._end_saving()

    def _end_saving(self) -> None:
        saving = self.saving
        if saving is not None and not saving.pending:
            self.saving = None
            self.on_saved(saving.number, saving.result())

    def _send_control(self, control: Control, deliveries: list[Delivery], along: Iterable[Route] | None = None) -> None:
        """Send a word to all receivers, or to those along some routes."""
        every = (route for routes in self.instance.routes.values() for route in routes)
        for route in every if along is None else along:
            for to, channel in route.targets:
                deliveries.append(Delivery(to, channel, None, NO_WATERMARK, 1, control))

    def lost(self, records: int) -> None:
        """Take note that a sink has not written after all what it had taken."""
        if self.measure:
            self.counters.records_out -= records
        self.counters.dead += records

    def waiting(self) -> int:
        """Return how many records are in the queue; the caller holds the lock that guards it."""
        return sum(entry.size for entry in self.queue.entries if entry.batch is not None)


#: A batch of more records than this runs alone: copying it costs more than another call.
_LARGE = 256

#: what a dead letter says of records that need not be at fault
_WHOLE = "its whole batch is set apart, since the step keeps state and has no snapshot and restore to take it back"

_NOTHING = Batch({"": np.zeros(1)}, 1, np.zeros((1, 2), np.int64))


def _no_operator(batch: Batch, port: int) -> Output:
    raise AssertionError("a source processes nothing")


def _only_target(instance: Instance) -> tuple[int, int] | None:
    routes = instance.routes.get(0, [])
    return routes[0].targets[0] if len(routes) == 1 and len(routes[0].targets) == 1 else None


def _send_to_each(targets: Iterable[tuple[int, int]], watermark: int, deliveries: list[Delivery]) -> None:
    for to, channel in targets:
        deliveries.append(Delivery(to, channel, None, watermark, 1))
