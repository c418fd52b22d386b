"""The thread that drains a log into a sink, as long and as often as it takes."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Protocol

from headwater.data.batch import Batch
from headwater.data.frames import unpack_frame
from headwater.data.jit import answering_at_once
from headwater.errors import InputError
from headwater.flow.endpoints import Refused, Writer, flush, gathers, keyed_write_of
from headwater.io.forwarding.troubles import Troubles, error_line, is_slip
from headwater.io.log import Entry

log = logging.getLogger(__name__)

_FIRST_S, _MOST_S = 0.1, 30.0  #: between two attempts
_ATTEMPTS = 3  #: with one writer, before another is opened
_LOOK_S = 0.02  #: between two looks for something new
_ROOM_S = 1.0  #: between two looks for room while nothing can be sent


class SendOrder(Protocol):
    """Says which entries are next."""

    def next(self) -> list[Entry]:
        """Return the entries to send now."""

    def on_sent(self, entries: list[Entry]) -> None:
        """Take note that entries have arrived."""

    def again(self) -> None:
        """Hand out again what was handed out and not sent."""


@dataclass(slots=True)
class _Hand:
    """What became of the entries in hand, which counts when they are done with."""

    taken: int = 0  #: records that the writer has
    too_old: int = 0
    refused: list[tuple[Batch, Refused]] = field(default_factory=list)


class Sender:
    """Sends what waits, and tries again, ever more rarely, while the sink does not take it.

    Records at which the sink's own code breaks, again and again, are set apart as those are that it refuses: with
    `all_or_none`, the very records, else all that were sent with them. Where it cannot even be opened, all wait.
    """

    def __init__(
        self,
        order: SendOrder,
        opening: Callable[[], Writer],
        on_refused: Callable[[Batch, Refused], None],
        first: Callable[[], int],
        *,
        name: str,
        key: str,
        is_its_turn: Callable[[int], bool],
        rate: int | None,
        is_too_old: Callable[[int], bool],
        on_room: Callable[[], None],
        all_or_none: bool,
    ) -> None:
        """`on_room` is called when there may be more room than before: some records are sent, or only time has passed."""
        self._order, self._opening, self._on_refused, self._first = order, opening, on_refused, first
        self._name, self._key, self._rate = name, key, rate
        self._is_too_old, self._on_room = is_too_old, on_room
        self._is_its_turn, self._all_or_none = is_its_turn, all_or_none
        self.forwarded = self.refused = 0  #: records that arrived, that never can
        self.troubles = Troubles(name)
        self.dropped: Counter[str] = Counter()
        self._writer: Writer | None = None
        self._entries: list[Entry] = []
        self._sent_count = 0  # of these, how many the writer has
        self._hand = _Hand()  # what became of these
        self._flushing = False  # whether the writer is at work on all of these together
        self._set_apart: dict[int, str] = {}  # entries at which the sink breaks, and how
        self._due_s = 0.0  # when the rate lets the next entry go
        self._until_s: float | None = None  # once it is to end: when at the latest
        self._condition = Condition()
        self._thread = Thread(target=self._run, name="headwater-forward", daemon=True)
        self._thread.start()

    def close(self, linger_s: float) -> bool:
        """Send what waits, for so long at most and while the sink takes it; False if the thread hangs in the sink."""
        with self._condition:
            self._until_s = time.monotonic() + linger_s
            self._condition.notify_all()
        self._thread.join(linger_s + 10)
        return not self._thread.is_alive()

    @answering_at_once()
    def _run(self) -> None:
        while not self._is_over():
            try:
                if not self._step():
                    if self._until_s is not None:
                        break
                    self._wait(_LOOK_S)
            except Exception as error:  # a sink of anybody's own may raise anything, and it must not stop the sending
                self._on_failure(error)
        self._leave()

    def _is_over(self) -> bool:
        """Once it is to end, it does when time is up or the sink does not take anything."""
        return self._until_s is not None and (time.monotonic() > self._until_s or self.troubles.is_hopeless)

    def _step(self) -> bool:
        """Send the next entries; False if there are none."""
        if not self._entries:
            self._entries = self._order.next()
        if not self._entries:
            return False
        if self._writer is None:
            self._writer = self._opening()
        for entry in self._entries[self._sent_count :]:
            if not self._is_its_turn(entry.position):
                self._flush()
                self._put_back()
                self._wait(_LOOK_S)
                return True
            if not self._pace(entry):
                return True
            if entry.position >= self._first():  # else it was dropped meanwhile, and counted
                self._send(entry)
            self._sent_count += 1
        self._flush()
        went_well = self._hand.taken > 0 or not self._set_apart
        self._on_arrival(self._entries)
        if went_well:
            self.troubles.over()
        return True

    def _flush(self) -> None:
        assert self._writer is not None
        self._flushing = True
        flush(self._writer)
        self._flushing = False

    def _send(self, entry: Entry) -> None:
        assert self._writer is not None
        if self._is_too_old(entry.created_ns):
            self._hand.too_old += entry.records
            return
        batch = unpack_frame(entry.data)
        if entry.position in self._set_apart:
            refusals = self._at_fault(batch, self._set_apart[entry.position])
        else:
            refusals = self._write(batch, entry.position) or {}
        if refusals:
            self._hand.refused.append((batch, refusals))
        self._hand.taken += batch.length - len(refusals)

    def _at_fault(self, batch: Batch, why: str) -> Refused:
        """Return the records at which the sink breaks, after writing the others where that can be told."""
        if batch.length == 1 or not self._all_or_none or gathers(self._writer):
            return dict.fromkeys(range(batch.length), why)
        assert self._writer is not None
        middle = batch.length // 2
        refusals: Refused = {}
        for first, stop in ((0, middle), (middle, batch.length)):
            part = batch.slice(first, stop)
            try:
                unfit = self._writer.write(part) or {}
            except Exception as error:
                if not is_slip(error):
                    raise
                unfit = self._at_fault(part, error_line(error))
            refusals |= {first + row: reason for row, reason in unfit.items()}
        return refusals

    def _write(self, batch: Batch, position: int) -> Refused | None:
        """Write records, by a name that is the same whenever they are sent where the other side can know it."""
        keyed = keyed_write_of(self._writer)
        if keyed is not None:
            return keyed(batch, f"{self._key}-{position}")
        assert self._writer is not None
        return self._writer.write(batch)

    def _pace(self, entry: Entry) -> bool:
        """Wait until the rate lets an entry go; False if it is time to end instead."""
        if self._rate is None:
            return True
        while (rest_s := self._due_s - time.monotonic()) > 0:
            if self._is_over():
                return False
            self._wait(min(rest_s, 0.5))
        self._due_s = max(self._due_s, time.monotonic() - 0.1) + entry.nbytes / self._rate
        return True

    def _on_failure(self, error: Exception) -> None:
        suspects = self._suspects()
        if self.troubles.note_failure(error, suspects):
            self._set_apart |= dict.fromkeys(suspects, error_line(error))
        failures = self.troubles.in_a_row
        renewed = is_slip(error) or failures % _ATTEMPTS == 0
        if renewed and (gathers(self._writer) or keyed_write_of(self._writer) is None):
            self._drop_writer()
        if not gathers(self._writer):
            with suppress(InputError):  # a disk that does not take what is refused: what is in hand stays there
                self._put_back()
        pause_s = min(_MOST_S, _FIRST_S * 2 ** min(failures - 1, 20))
        self._rest(pause_s * random.uniform(0.5, 1))

    def _suspects(self) -> tuple[int, ...]:
        """Return the entries that the sink was at work on when it failed; none if it was not even open."""
        flushing, self._flushing = self._flushing, False
        if self._writer is None:
            return ()
        stop = self._sent_count if flushing else self._sent_count + 1
        return tuple(entry.position for entry in self._entries[0 if flushing else self._sent_count : stop])

    def _rest(self, seconds: float) -> None:
        """Wait before the next attempt, unless it is to end."""
        until_s = time.monotonic() + seconds
        while self._until_s is None and (rest_s := until_s - time.monotonic()) > 0:
            self._on_room()  # what has become too old makes some
            self._wait(min(rest_s, _ROOM_S), unless_ending=True)

    def _drop_writer(self) -> None:
        """Let the writer go; what it had gathered and not brought away is sent again by the next one."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if gathers(writer):
            self._sent_count, self._hand = 0, _Hand()
        try:
            writer.close()
        except Exception as error:
            log.debug("closing %s: %s", self._name, error)

    def _put_back(self) -> None:
        """Keep nothing in hand while the sink is away: the log may have to drop it, and counts it then."""
        if self._sent_count:
            self._on_arrival(self._entries[: self._sent_count])
        self._entries = []
        self._order.again()

    def _leave(self) -> None:
        """End: what the writer has of the entries in hand is done with, if it can bring it away."""
        if self._writer is None:
            return
        try:
            if self._sent_count:
                flush(self._writer)
                self._on_arrival(self._entries[: self._sent_count])
            writer, self._writer = self._writer, None
            writer.close()
        except Exception as error:  # what it could not bring away is in the log, and comes with the next run
            log.warning("closing %s: %s", self._name, error)
            self._drop_writer()  # else its connection lives on, and sends what the next run sends too

    def _on_arrival(self, entries: list[Entry]) -> None:
        """Be done with entries; only now what was refused is kept, and counted: those that wait are sent again."""
        hand = self._hand
        while hand.refused:
            batch, refusals = hand.refused[0]
            self._on_refused(batch, refusals)
            self.refused += len(refusals)
            hand.refused.pop(0)
        self._order.on_sent(entries)
        for entry in entries:
            self._set_apart.pop(entry.position, None)
        self.forwarded += hand.taken
        self.dropped["too old"] += hand.too_old
        self._entries, self._sent_count, self._hand = [], 0, _Hand()
        self._on_room()

    def _wait(self, seconds: float, *, unless_ending: bool = False) -> None:
        with self._condition:
            if not (unless_ending and self._until_s is not None):
                self._condition.wait(seconds)
