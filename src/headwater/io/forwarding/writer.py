"""Taking records for a sink that may not be there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.frames import pack
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused, Sink, all_or_none
from headwater.io.bounded_writer import BoundedWriter
from headwater.io.forwarding.order import Newest, Oldest
from headwater.io.forwarding.refusals import keep_refused
from headwater.io.forwarding.sender import Sender
from headwater.io.log import Bounds, Log, records_in
from headwater.io.sifting import sift

log = logging.getLogger(__name__)

_SYNC_S = 0.01
_PATIENCE_S = 0.02
_ENTRY_BYTES = 2**18
_QUIET_S = 60.0


class ForwardWriter(BoundedWriter):
    """Appends records to a log that a thread drains into the sink.

    Records are taken when they are in the log: safe from the end of this process at once, from a power cut within 10 ms or
    after `flush`. Those that the sink itself refuses, or breaks at by its own code, are kept in a log of their own, in the
    folder `refused`.
    """

    def __init__(
        self,
        sink: Sink,
        schema: Schema,
        folder: Path,
        bounds: Bounds,
        *,
        newest_first: bool,
        rate: int | None,
        priority: str | None,
        linger_s: float,
        is_its_turn: Callable[[int], bool] = lambda position: True,
    ) -> None:
        super().__init__()
        self._name, self._folder, self._bounds = str(sink), folder, bounds
        self._priority, self._linger_s = priority, linger_s
        self._entry_bytes = min(_ENTRY_BYTES, (bounds.nbytes or _ENTRY_BYTES) // 32)
        self._count = 0  # records of this run
        self._warned_s = -_QUIET_S
        self._log = Log(folder, bounds, sync_every_s=_SYNC_S)
        self._consumer = self._log.consumer("sender")
        self._order = Newest(self._log, self._consumer, str(folder)) if newest_first else Oldest(self._consumer)
        self._count_before = records_in(folder, self._consumer.needs)  # of earlier runs
        self._sender = Sender(
            self._order,
            lambda: sink.open(schema),
            partial(keep_refused, folder, self._name),
            lambda: self._log.first,
            name=self._name,
            # a name that a log has for good, and no other: by it and its position an entry is known to the other side
            key=self._log.note("name", lambda: token_hex(6).encode()).decode(),
            is_its_turn=is_its_turn,
            rate=rate,
            is_too_old=self._log.is_too_old,
            on_room=self._find_room,
            all_or_none=all_or_none(sink),
        )

    def write(self, batch: Batch) -> Refused:
        """Take the records that can be stored; a full log that holds makes this wait until there is room."""
        refusals: Refused = {}
        for rows, priority in self._by_priority(batch):
            unfit = self._store(batch if rows is None else batch.take(rows), priority)
            refusals |= {row if rows is None else int(rows[row]): why for row, why in unfit.items()}
        self._tell_room()
        return refusals

    def _store(self, batch: Batch, priority: int, first: int = 0) -> Refused:
        """Append records in entries of moderate size; return those that cannot be, counted from `first`."""
        if batch.length > 1 and batch.nbytes > self._entry_bytes:
            middle = batch.length // 2
            refusals = self._store(batch.slice(0, middle), priority, first)
            return refusals | self._store(batch.slice(middle, batch.length), priority, first + middle)
        form, records, unfit = sift(batch, pack)
        if records.length and self._log.is_too_large(len(form)):
            return {first + row: f"{len(form):,} bytes, more than the log may hold" for row in range(batch.length)}
        if records.length:
            self._append(form, records.length, priority)
            self._count += records.length
        return {first + row: why for row, why in unfit.items()}

    @property
    def _holds(self) -> bool:
        return self._bounds.full == "hold" and bool(self._bounds.nbytes)

    def _share_taken(self) -> float:
        assert self._bounds.nbytes
        is_waiting = self._log.end > self._consumer.released  # what is sent and still on disk is in nobody's way
        return self._log.nbytes / self._bounds.nbytes if is_waiting else 0.0

    def _find_room(self) -> None:
        """See whether there is more room: some records are sent, or have become too old."""
        if self._bounds.age_s is not None:
            with suppress(InputError):  # a disk that fails is told of by who appends
                self._log.expire()
        self._tell_room()

    def flush(self) -> None:
        """Have all records safe on disk."""
        self._log.sync()

    def account(self) -> dict[str, Any]:
        """Return what became of the records: those of this run and those that waited from earlier ones."""
        sender = self._sender
        dropped = self._log.dropped + sender.dropped  # which leaves out what is 0
        if self._order.lost:
            dropped["damaged entries"] = self._order.lost
        waiting = self._count_before + self._count - sender.forwarded - sender.refused - sum(dropped.values())
        return {
            "taken": self._count,
            "waited_before": self._count_before,
            "forwarded": sender.forwarded,
            "waiting": max(0, waiting),
            "refused": sender.refused,
            "dropped": dict(dropped),
            **sender.troubles.to_json(),
        }

    def close(self) -> None:
        """Send what waits for a while, and leave the rest to the next run."""
        self._log.sync()
        if not self._sender.close(self._linger_s):
            log.warning("the sink behind %s hangs, and is left behind; what waits there is safe", self._folder)
            return  # the thread may still use the files
        waiting = self.account()["waiting"]
        if waiting:
            log.warning(
                "%d records wait in %s for the next run, since %s did not take them", waiting, self._folder, self._name
            )
        self._consumer.close()
        self._log.close()

    def _append(self, form: bytes, records: int, priority: int) -> None:
        while True:
            try:
                self._log.append(form, records=records, priority=priority)
                return
            except InputError as error:
                if self._bounds.full != "hold":
                    raise
                now_s = time.monotonic()
                if now_s - self._warned_s > _QUIET_S:
                    self._warned_s = now_s
                    log.warning("the flow is held: %s", error)
                time.sleep(_PATIENCE_S)

    def _by_priority(self, batch: Batch) -> list[tuple[Any, int]]:
        """Return the rows of each priority, the highest first; None for all rows."""
        if self._priority is None:
            return [(None, 0)]
        values = np.clip(np.asarray(_plain(batch[self._priority])), 0, 254)
        return [(np.flatnonzero(values == value), int(value)) for value in np.unique(values)[::-1]]


def _plain(column: Any) -> Any:
    """Return a column's values; a missing one counts as 0."""
    valid = getattr(column, "valid", None)
    return column if valid is None else np.where(valid, column.values, 0)
