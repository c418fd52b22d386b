"""Parts for a sink behind a network: kept on disk until they are delivered, so that a cut uplink costs no record."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Protocol

from headwater.data.batch import Batch
from headwater.data.frames import pack
from headwater.data.jit import answering_at_once
from headwater.errors import InputError
from headwater.flow.endpoints import CutTransaction, Ledger, Refused
from headwater.io.bounded_writer import BoundedWriter
from headwater.io.files import explained, replace_whole, sync
from headwater.io.forwarding.refusals import keep_refused
from headwater.io.forwarding.troubles import Troubles, error_line
from headwater.io.sifting import sift
from headwater.io.transactions.frames import DamagedError, packed_part, part_in
from headwater.io.transactions.open_files import OpenFiles

log = logging.getLogger(__name__)

_MOST_BYTES = 10**9  #: on disk; beyond, the flow is held
_LINGER_S = 10.0  #: for which what is left is delivered when a run ends
_FIRST_S, _MOST_S = 0.1, 30.0  #: between two attempts
_LOOK_S = 0.05  #: between two looks whether it is our turn
_PREPARED, _DUE, _DAMAGED, _LAST = ".rows", ".due", ".damaged", "delivered"


class Uplink(Protocol):
    """The way to the other side; one thread uses it, which tries again what raises."""

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Have a part there; return what the other side will never take. Raises InputError, and may get the part again.

        One that can tell that a part is there already, by name and number, does nothing then: each is there once.
        """

    def close(self) -> None:
        """Leave."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is known of a part that is due."""

    nbytes: int
    records: int


_EMPTY = _Part(0, 0)


class Outbox(BoundedWriter, CutTransaction):
    """Keeps parts as files beside the checkpoint; a thread delivers those that are committed, in their order.

    A part whose checkpoint is complete is delivered now, or when the other side is back, or by the next run. What the other
    side refuses then is kept in the folder `refused`, and so is a part at which the sink's own code breaks, again and again.
    One that the disk has damaged is told by its checksum, set aside as `.damaged`, and counted. Those behind are delivered.
    """

    def __init__(self, sink: Any, uplink: Uplink, ledger: Ledger, *, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__()
        self._sink, self._uplink, self._ledger, self._most_bytes = str(sink), uplink, ledger, most_bytes
        self._part: list[Batch] = []
        self._ended_parts: dict[int, list[Batch]] = {}  # parts that have ended, and are not yet files
        self._counts: dict[int, int] = {}  # records of those that are files and not yet due
        self._count = self._delivered = self._refused = 0
        self._troubles = Troubles(self._sink)
        self._broken: dict[int, str] = {}  # parts at which the sink's own code breaks, again and again, and how
        self._deleted = self._damaged = self._gone = 0  # parts, and how many records they had
        self._memory_bytes = self._due_bytes = 0  # of what is not a file yet, and of the files that are due
        self._open_files = OpenFiles()  # used by one thread at a time, with `_condition`
        self._condition = Condition()
        self._until_s: float | None = None  # once it is to end: when at the latest
        try:
            ledger.folder.mkdir(parents=True, exist_ok=True)
            last = ledger.folder / _LAST
            self._committed = int(last.read_text()) if last.exists() else -1
            self._due = {
                number: self._inspect(number) for number in self._files(_DUE)
            }  # those to be delivered, in order
            self._go_on()
            for number in self._due:
                self._open_files.hold(number, self._file(number, _DUE))
        except OSError as error:
            raise explained(error, ledger.folder, "keep records in") from error
        self._waiting_before = sum(part.records for part in self._due.values())
        self._due_bytes = sum(part.nbytes for part in self._due.values())
        self._thread = Thread(target=self._run, name="headwater-outbox", daemon=True)
        self._thread.start()

    @property
    def committed(self) -> int:
        """The last part that is there, or will be."""
        return self._committed

    def write(self, batch: Batch) -> Refused:
        """Keep records; while too many wait, this waits."""
        _, records, refusals = sift(batch, pack)
        self._wait_for_room()
        self._part.append(records)
        self._count += records.length
        with self._condition:
            self._memory_bytes += records.nbytes
        self._tell_room()
        return refusals

    def _share_taken(self) -> float:
        return (self._due_bytes + self._memory_bytes) / self._most_bytes

    def cut(self, number: int) -> Callable[[], None]:
        """End the part here; its file is for later."""
        self._ended_parts[number] = self._part
        self._part = []
        return partial(self._keep, number)

    def _keep(self, number: int) -> None:
        """Keep the parts up to this one as files: those before it whose checkpoints came to nothing are part of it."""
        for part, batches in list(self._ended_parts.items()):
            if part <= number:
                replace_whole(self._file(part, _PREPARED), packed_part(batches))
                self._counts[part] = sum(each.length for each in batches)
                with self._condition:
                    self._memory_bytes -= sum(each.nbytes for each in batches)
                    self._open_files.hold(part, self._file(part, _PREPARED))
                del self._ended_parts[part]

    def commit(self, number: int) -> None:
        """Have the parts up to this one delivered, from now on."""
        self._restore()
        if number not in (*self._files(_PREPARED), *self._files(_DUE)):
            self.prepare(number)
        self._make_due(number)

    def rollback(self) -> None:
        """Forget what was written since the last part ended."""
        with self._condition:
            self._memory_bytes -= sum(each.nbytes for each in self._part)
        self._part = []

    def account(self) -> dict[str, Any]:
        """Return what became of the records."""
        count = self._delivered + self._refused + self._gone
        return {
            "taken": self._count,
            "waited_before": self._waiting_before,
            "forwarded": self._delivered,
            "waiting": max(0, self._waiting_before + self._count - count),
            "refused": self._refused,
            **self._troubles.to_json(),
            **({"deleted_parts": self._deleted} if self._deleted else {}),
            **({"damaged_parts": self._damaged} if self._damaged else {}),
        }

    def close(self) -> None:
        """Deliver what is due for a while, and leave the rest to the next run."""
        with self._condition:
            self._until_s = time.monotonic() + _LINGER_S
            self._condition.notify_all()
        self._thread.join(_LINGER_S + 10)
        if not self._thread.is_alive():
            self._open_files.close()
        if self._due:
            log.warning(
                "%d parts wait in %s for the next run: %s did not take them",
                len(self._due),
                self._ledger.folder,
                self._sink,
            )

    # -- files ----------------------------------------------------------------------------------------------------------

    def _file(self, number: int, ending: str) -> Path:
        return self._ledger.folder / f"{number:09d}{ending}"

    def _files(self, ending: str) -> list[int]:
        return sorted(int(path.stem) for path in self._ledger.folder.glob(f"*{ending}"))

    def _go_on(self) -> None:
        """Have due what was prepared up to the part after which the run goes on, and forget the rest."""
        self._committed = max([self._committed, *self._due])
        after = self._committed if self._ledger.after is None else self._ledger.after
        if after < self._committed:
            raise InputError(
                f"cannot go on after part {after}: part {self._committed} is delivered to {self._sink}, or about to be, and "
                "is not taken back. Bring back the last checkpoint from a copy; or begin anew with another checkpoint, and "
                "have the records since then there twice"
            )
        if after > self._committed and after not in self._files(_PREPARED):
            raise InputError(
                f"cannot go on after part {after}: it was not delivered, and is not in {self._ledger.folder}; "
                "was the checkpoint copied in part?"
            )
        self._make_due(after)
        for number in self._files(_PREPARED):
            self._file(number, _PREPARED).unlink()

    def _make_due(self, number: int) -> None:
        with self._condition:
            due_before = set(self._due)  # before looking: some of these may be delivered meanwhile
        # an attempt that the disk failed may have left some that have their new name, and are not known to be due
        due = [part for part in sorted({*self._files(_PREPARED), *self._files(_DUE)} - due_before) if part <= number]
        try:
            for part in due:
                with self._condition:
                    with suppress(FileNotFoundError):
                        self._file(part, _PREPARED).replace(self._file(part, _DUE))
                    self._open_files.hold(part, self._file(part, _DUE))
            if due:
                sync(self._ledger.folder)
            parts = {part: self._inspect(part) for part in due}
        except OSError as error:
            raise explained(error, self._ledger.folder, "keep records in") from error
        with self._condition:
            self._due |= parts
            self._due_bytes += sum(part.nbytes for part in parts.values())
            self._committed = max(self._committed, number)
            self._drop_empty()
            self._condition.notify_all()
        self._tell_room()

    def _drop_empty(self) -> None:
        """Forget the parts without a record, lest an outage leave a file for each checkpoint.

        The first may be on its way now, and the last says up to where parts were committed.
        """
        for number in list(self._due)[1:-1]:
            if self._due[number] == _EMPTY:
                del self._due[number]
                self._open_files.let_go(number)
                self._file(number, _DUE).unlink(missing_ok=True)

    def _inspect(self, number: int) -> _Part:
        """Look at a part that is due; one that is damaged is reported when it is its turn."""
        path = self._file(number, _DUE)
        if number not in self._counts:
            with suppress(DamagedError):
                self._counts[number] = sum(batch.length for batch in part_in(path))
        return _Part(path.stat().st_size, self._counts.pop(number, 0))

    def _restore(self) -> None:
        """Write again what somebody has deleted."""
        with self._condition:
            if missing := self._open_files.restore():
                log.warning(
                    "%d parts for %s were deleted, and are written again: %s", len(missing), self._sink, missing[0]
                )

    def _wait_for_room(self) -> None:
        """Wait while too much is due, unless sources are held for that: what they have sent by then is little."""
        has_warned = False
        while self._until_s is None and not self.is_heard and self._due_bytes > self._most_bytes:
            if not has_warned:
                log.warning("the flow is held: %s bytes wait in %s", f"{self._due_bytes:,}", self._ledger.folder)
                has_warned = True
            with self._condition:
                self._condition.wait(0.1)

    # -- the thread -----------------------------------------------------------------------------------------------------

    @answering_at_once()
    def _run(self) -> None:
        while self._wait_for_a_part():
            number = self._next
            went_well = number not in self._broken
            try:
                self._deliver(number)
                if went_well:
                    self._troubles.over()
            except Exception as error:  # a sink of anybody's own may raise anything, and it must not stop the delivery
                if self._troubles.note_failure(error, (number,)):
                    self._broken[number] = error_line(error)
        with suppress(Exception):  # all that it was given is there, or in a file
            self._uplink.close()

    def _wait_for_a_part(self) -> bool:
        """Wait for a part that is due, or for the time to try one again; False if it is time to end."""
        failures = self._troubles.in_a_row
        pause_s = min(_MOST_S, _FIRST_S * 2 ** min(failures - 1, 20)) * random.uniform(0.5, 1) if failures else 0.0
        with self._condition:
            self._condition.wait_for(lambda: self._until_s is not None, pause_s)
            self._condition.wait_for(lambda: self._due or self._until_s is not None)
            while self._due and not self._is_over() and not self._ledger.is_turn_of_part(self._next):
                self._condition.wait(_LOOK_S)
            return bool(self._due) and not self._is_over()

    def _is_over(self) -> bool:
        return self._until_s is not None and (self._troubles.is_hopeless or time.monotonic() > self._until_s)

    @property
    def _next(self) -> int:
        with self._condition:
            return next(iter(self._due))

    def _deliver(self, number: int) -> None:
        path = self._file(number, _DUE)
        self._restore()
        if not path.exists():
            log.error("part %d for %s was deleted before it was delivered: its records are gone", number, self._sink)
            self._deleted += 1
            self._give_up(number)
            return
        try:
            batches = part_in(path)
        except DamagedError as error:
            aside = path.with_suffix(_DAMAGED)
            log.error("part %d for %s is not delivered, and kept as %s: %s", number, self._sink, aside, error)
            path.replace(aside)
            self._damaged += 1
            self._give_up(number)
            return
        if number in self._broken:
            refusals = [(batch, dict.fromkeys(range(batch.length), self._broken[number])) for batch in batches]
        else:
            refusals = self._uplink.deliver(self._ledger.name, number, batches) if batches else []
        for batch, why in refusals:
            keep_refused(self._ledger.folder, self._sink, batch, why)
            self._refused += len(why)
        self._delivered += sum(batch.length for batch in batches) - sum(len(why) for _, why in refusals)
        self._forget(number)

    def _give_up(self, number: int) -> None:
        """Go on without a part that cannot be had."""
        records = self._due[number].records
        self._forget(number)
        self._gone += records

    def _forget(self, number: int) -> None:
        """Forget a part that is delivered or given up."""
        replace_whole(self._ledger.folder / _LAST, str(number).encode())
        with self._condition:
            self._open_files.let_go(number)
            self._file(number, _DUE).unlink(missing_ok=True)
            self._due_bytes -= self._due.pop(number).nbytes
            self._condition.notify_all()
        self._broken.pop(number, None)
        self._tell_room()


def undelivered(folder: Path, up_to: float = inf) -> int:
    """Return how many parts in an outbox's folder, up to one, are not delivered yet."""
    count = 0
    for ending in (_PREPARED, _DUE):
        for path in folder.glob(f"*{ending}"):
            with suppress(FileNotFoundError):  # delivered meanwhile, by another process
                count += int(path.stem) <= up_to and path.stat().st_size > 0
    return count


def deliver_after(folder: Path, number: int) -> None:
    """Have the outbox that is opened next in a folder go on behind a part, which somebody else has delivered."""
    replace_whole(folder / _LAST, str(number).encode())
