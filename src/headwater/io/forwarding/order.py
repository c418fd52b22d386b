"""Which entries of a log are sent next: the oldest, or the newest."""

from __future__ import annotations

import msgspec

from headwater.io.log import Consumer, Entry, Log

_BYTES = 2**18  #: sent before it is made sure that they are there
_ENTRIES = 64  #: looked at together, from the end


class Oldest:
    """Entries in the order they came."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        consumer.needs = lambda position: position >= consumer.released

    def next(self) -> list[Entry]:
        """Return the entries to send now."""
        return self._consumer.read(_BYTES)

    def on_sent(self, entries: list[Entry]) -> None:
        """Release these entries."""
        self._consumer.release(entries[-1].position + 1)

    def again(self) -> None:
        """Begin again with what is not sent: some of what was handed out may be dropped by now."""
        self._consumer.reader.seek(self._consumer.released)

    @property
    def lost(self) -> int:
        """Entries that were damaged."""
        return sum(trouble.stop - trouble.start for trouble in set(self._consumer.reader.troubles))


class Newest:
    """The newest entries first; what has waited follows when nothing is new.

    What was sent and lies behind what was not is noted beside the log, so that it is not sent again by the next run.
    """

    def __init__(self, log: Log, consumer: Consumer, folder: str) -> None:
        self._log, self._consumer = log, consumer
        self._file = f"{folder}/sent"
        self._end = log.synced
        #: positions that are not sent, from and to; never changed in place, since who drops entries looks at it too
        self._unsent: list[tuple[int, int]] = _without([(consumer.released, self._end)], self._read_sent_ranges())
        self.lost = 0  #: entries that were damaged
        consumer.needs = self._needs

    def next(self) -> list[Entry]:
        """Return the entries to send now."""
        synced = self._log.synced
        if synced > self._end:
            self._unsent = _merge([*self._unsent, (self._end, synced)])
            self._end = synced
        while self._unsent:
            start, stop = self._unsent[-1]
            first = max(start, stop - _ENTRIES)
            reader = self._log.reader(first)
            entries: list[Entry] = []
            try:
                while reader.position < stop and (chunk := reader.read(_BYTES)):
                    entries += [entry for entry in chunk if entry.position < stop]
            finally:
                reader.close()
            self.lost += reader.lost
            if entries:
                return entries[::-1]
            self._forget(first, stop)  # dropped, all of them
        return []

    def on_sent(self, entries: list[Entry]) -> None:
        """Release these entries, and those between them, which are gone."""
        self._forget(entries[-1].position, entries[0].position + 1)

    def again(self) -> None:
        """Nothing to do: it always begins with what is not sent."""

    def _needs(self, position: int) -> bool:
        return position >= self._end or any(start <= position < stop for start, stop in self._unsent)

    def _forget(self, start: int, stop: int) -> None:
        self._unsent = _without(self._unsent, [(start, stop)])
        lowest = self._unsent[0][0] if self._unsent else self._end
        sent_ranges = _without([(lowest, self._end)], self._unsent)
        with open(self._file, "wb") as file:
            file.write(msgspec.msgpack.encode(sent_ranges))
        self._consumer.release(lowest)

    def _read_sent_ranges(self) -> list[tuple[int, int]]:
        try:
            with open(self._file, "rb") as file:
                return msgspec.msgpack.decode(file.read(), type=list[tuple[int, int]])
        except (FileNotFoundError, msgspec.DecodeError):  # cut short: some are sent twice
            return []


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same positions in ranges that do not touch.

    >>> _merge([(0, 2), (2, 5), (7, 8)])
    [(0, 5), (7, 8)]
    """
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        elif start < stop:
            merged.append((start, stop))
    return merged


def _without(ranges: list[tuple[int, int]], holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is left of some ranges.

    >>> _without([(0, 10)], [(3, 5), (9, 12)])
    [(0, 3), (5, 9)]
    """
    for start, stop in holes:
        ranges = [
            part
            for low, high in ranges
            for part in ((low, min(high, start)), (max(low, stop), high))
            if part[0] < part[1]
        ]
    return ranges
