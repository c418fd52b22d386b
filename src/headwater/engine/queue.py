"""The FIFO in front of a step instance."""

from __future__ import annotations

from collections import deque

from headwater.flow.batch import NO_WATERMARK, Batch

#: (channel, batch, watermark, put_ns, count, born_ns): the channel it came by; the records, or None for a mark without
#: any; the watermark that holds once it is processed; when it was put here; its records, 1 for a mark; and when the oldest
#: of its records was created. A plain tuple: millions are made, and nothing is faster.
Entry = tuple[int, Batch | None, int, int, int, int]


class Queue:
    """Entries in order; hands them out whole, or cut so that exactly the wanted number of records comes."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()

    def take(self, count: int) -> list[Entry]:
        """Take `count` records from the front; a batch that reaches further is cut."""
        entries = self.entries
        taken = []
        while count:
            entry = entries.popleft()
            if entry[4] > count:
                entry, rest = _cut(entry, count)
                entries.appendleft(rest)
            taken.append(entry)
            count -= entry[4]
        return taken

    def head_born_ns(self) -> int:
        """Return when the oldest record of the front entry was created, 0 when the queue is empty."""
        return self.entries[0][5] if self.entries else 0


def _cut(entry: Entry, count: int) -> tuple[Entry, Entry]:
    channel, batch, watermark, put_ns, total, born_ns = entry
    assert batch is not None
    head = (channel, batch.slice(0, count), NO_WATERMARK, put_ns, count, born_ns)
    return head, (channel, batch.slice(count, total), watermark, put_ns, total - count, born_ns)
