"""When a source is read next: records that come by themselves are left to gather for a few milliseconds.

An activation costs about the same for one record as for fifty. Read as soon as one is there, a slow stream would be the
dearest per record of all. So a source whose records come by themselves is read at most once in `linger_s`; the first record
after a pause in the stream is taken at once, and nothing lingers while the flow is behind.

A batch that is large takes long itself: its records wait for each other twice, while it gathers and while it is
processed. So the more come, the shorter they are left to gather: for as long as `_PLENTY` take to come, within bounds.
"""

from __future__ import annotations

_MANY = 100  #: records that gathered, from which on a source is busy: one more costs next to nothing
_PLENTY = 1000  #: records that are enough: what a batch costs is little beside what they cost
#: records that gathered and are read at once, as far as a queue takes them: in pieces, one would be made while a worker is
#: at the piece before, and the two would hand the interpreter's lock to and fro
ALL = 8000
_BEHIND = 2.0  #: of the time to linger; records that are older than that have waited for more than each other


class Linger:
    """Decides from what each read returned; moments are nanoseconds of one clock.

    Files and other sources that are read as fast as one likes never linger: they are known by their records, which are
    made when they are asked for, and by always having some.
    """

    def __init__(self, linger_s: float, busy_s: float | None = None, least_s: float | None = None) -> None:
        """`busy_s` is how long to linger where many records gather, `least_s` where more do than is of use."""
        self._linger_ns = round(linger_s * 1e9)
        self._busy_ns = self._linger_ns if busy_s is None else round(busy_s * 1e9)
        self._least_ns = self._busy_ns if least_s is None else round(least_s * 1e9)
        self.comes_by_itself = False  #: until this is seen, a read should not wait: one that has nothing shows it
        self._read_ns = 0  #: when the last read returned
        self._limit = self._count = 0
        self._gathered = 0  #: records of the last reads, of which all but the last had more than was asked for
        self._since_ns = 0  #: when the oldest of them was created
        self._behind = False

    def read(self, limit: int, count: int, oldest_ns: int, called_ns: int, now_ns: int) -> None:
        """Take note of a read: how many records came of those asked for, and when the oldest of them was created."""
        if self._count < self._limit or not self._gathered:
            self._gathered, self._since_ns = 0, oldest_ns
        self._gathered += count
        self._read_ns, self._limit, self._count = now_ns, limit, count
        self.comes_by_itself = self.comes_by_itself or count == 0 or oldest_ns < called_ns
        self._behind = now_ns - oldest_ns > _BEHIND * self._linger_ns

    @property
    def reads_on(self) -> bool:
        """Whether there is no point in waiting for more: what is there can be had, and does not become more by itself."""
        return not self.comes_by_itself or self._behind

    def pause_s(self, now_ns: int) -> float:
        """Return how long to leave the source alone before it is read again."""
        if self.reads_on or not 0 < self._count < self._limit:
            return 0.0
        return max(0, self._read_ns + self._gather_ns() - now_ns) / 1e9

    def _gather_ns(self) -> int:
        """Return how long records should gather, by how many have come in how long."""
        if self._gathered < _MANY:
            return self._linger_ns
        enough_ns = _PLENTY * (self._read_ns - self._since_ns) // self._gathered
        return max(self._least_ns, min(self._busy_ns, enough_ns))

    def next_chunk(self, least: int, most: int, room: int = ALL) -> int:
        """Return how many records to ask for: all that gathered, or twice as many as were there to be had.

        A queue has `room` for so many.
        """
        if self.comes_by_itself and self._linger_ns:
            return max(most, min(ALL, room))
        return least if self._count < self._limit else min(2 * self._limit, most)
