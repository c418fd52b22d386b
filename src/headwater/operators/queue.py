"""The FIFO in front of a step instance."""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from headwater.data.batch import NO_WATERMARK, Batch

FROM_CLOCK = 1  #: the number of a word that no other task has sent


class Control(NamedTuple):
    """A word to a task about a checkpoint or the time, in line with the records.

    A `barrier` says that all records of its channel before it belong to the checkpoint; the `last` barrier, that none will
    follow; a `snapshot` asks a task to save itself now, whatever is still on its way to it; `commit` tells a sink that the
    checkpoint is complete. `idle` says that nobody needs to wait for the time of a channel (`FROM_CLOCK`: that
    nothing has come by any), `active` that it counts again; a `tick`, that the machine's clock has moved on.
    """

    kind: Literal["barrier", "last", "snapshot", "commit", "idle", "active", "tick"]
    number: int = 0


class QueueEntry(NamedTuple):
    """What waits in a queue: records, a watermark, or records and the watermark that holds once they are processed."""

    channel: int  #: the channel it came by
    batch: Batch | None  #: None for a watermark without records
    watermark: int
    put_ns: int  #: when it was put here
    size: int  #: its records, 1 for a watermark without any
    created_ns: int  #: when the oldest of its records was created
    control: Control | None = None  #: then it has neither records nor a watermark


class Delivery(NamedTuple):
    """Something to be put into the queue of an instance."""

    to: int
    channel: int
    batch: Batch | None
    watermark: int
    size: int  #: its records, 1 for a watermark without any
    control: Control | None = None

    @classmethod
    def of(cls, to: int, channel: int, batch: Batch | None, watermark: int) -> Delivery:
        """Return records and their watermark, or a watermark without records."""
        return cls(to, channel, batch, watermark, 1 if batch is None else batch.length)

    def entry(self, put_ns: int, created_ns: int) -> QueueEntry:
        """Return it as it waits in the queue."""
        return QueueEntry(self.channel, self.batch, self.watermark, put_ns, self.size, created_ns, self.control)


class Queue:
    """Entries in order; hands them out whole, or cut so that exactly the wanted number of records comes."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: deque[QueueEntry] = deque()

    def take(self, count: int) -> list[QueueEntry]:
        """Take `count` records from the front; a batch that reaches further is cut."""
        entries = self.entries
        head = []
        while count:
            entry = entries.popleft()
            if entry.size > count:
                entry, rest = _cut(entry, count)
                entries.appendleft(rest)
            head.append(entry)
            count -= entry.size
        return head

    def take_urgent(self) -> list[QueueEntry]:
        """Take the words at the front that were put before all that waited."""
        entries, words = self.entries, []
        while entries and entries[0].control is not None and entries[0].control.kind == "snapshot":
            words.append(entries.popleft())
        return words

    def records(self) -> int:
        """Return how many records wait here."""
        return sum(entry.size for entry in self.entries if entry.batch is not None)

    def head_created_ns(self) -> int:
        """Return when the oldest record of the front entry was created, 0 when the queue is empty."""
        return self.entries[0].created_ns if self.entries else 0


def _cut(entry: QueueEntry, count: int) -> tuple[QueueEntry, QueueEntry]:
    batch, size = entry.batch, entry.size
    assert batch is not None
    head = entry._replace(batch=batch.slice(0, count), watermark=NO_WATERMARK, size=count)
    return head, entry._replace(batch=batch.slice(count, size), size=size - count)
