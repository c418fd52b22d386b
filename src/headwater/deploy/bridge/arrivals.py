"""Messages that have arrived and wait for the flow to take them, in order."""

from __future__ import annotations

from collections import deque

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches

NOTHING = Batch.of_watermark(NO_WATERMARK)  #: what a reader returns while nothing has come


class Arrivals:
    """A queue of messages; knows no locks. A message is a batch: records, or a word about event time."""

    def __init__(self, handed: int = 0, *, ended: bool = False) -> None:
        self._waiting: deque[tuple[Batch, int, int]] = deque()
        self.handed = handed  #: the number behind the last message that was taken
        self.ended = ended  #: whether that was the end
        self.taken_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, message: Batch, number: int = 0, nbytes: int = 0) -> None:
        """Add a message with its number, and the bytes that it took on its way."""
        self._waiting.append((message, number, nbytes))

    def take(self, limit: int) -> Batch | None:
        """Return about `limit` records as one batch, up to the next word about time.

        That is `NOTHING` while none wait, and None at the end.
        """
        taken: list[Batch] = []
        size = 0
        while self._waiting and size < limit:
            message, number, nbytes = self._waiting[0]
            if message.watermark == END and taken:
                break  # the records before the end come first
            self._waiting.popleft()
            self.handed = number + 1
            self.taken_bytes += nbytes
            if message.watermark == END:
                self.ended = True
                break
            taken.append(message)
            size += message.length
            if message.watermark > NO_WATERMARK:
                break
        if taken:
            return concat_batches(taken)
        return None if self.ended else NOTHING
