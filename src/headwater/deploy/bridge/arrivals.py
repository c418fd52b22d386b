"""Messages that have arrived and wait for the flow to take them, in order.

A word about event time says how far it has come, or, where it says nothing of that, that nobody needs to wait for the stream
until something else comes: it is silent.
"""

from __future__ import annotations

from collections import deque

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches

NOTHING = Batch.of_watermark(NO_WATERMARK)  #: what a reader returns while nothing has come
SILENT = NOTHING  #: and what a sender says of a stream that nobody needs to wait for


def is_word(message: Batch) -> bool:
    """Say whether a message is a word about event time: records have columns."""
    return not message.columns


class Arrivals:
    """A queue of messages; knows no locks. A message is a batch: records, or a word about event time."""

    def __init__(self, handed: int = 0, *, ended: bool = False, idle: bool = False) -> None:
        self._waiting: deque[tuple[Batch, int, int]] = deque()
        self.handed = handed  #: the number behind the last message that was taken
        self.ended = ended  #: whether that was the end
        self.idle = idle  #: whether that was the word that the stream is silent
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
        batches: list[Batch] = []
        size = 0
        while self._waiting and size < limit:
            message, number, nbytes = self._waiting[0]
            is_silence = is_word(message) and message.watermark == NO_WATERMARK
            if (is_silence or message.watermark == END) and batches:
                break  # the records before it come first
            self._waiting.popleft()
            self.handed = number + 1
            self.taken_bytes += nbytes
            self.idle = is_silence
            if is_silence:
                break
            if message.watermark == END:
                self.ended = True
                break
            batches.append(message)
            size += message.length
            if message.watermark > NO_WATERMARK:
                break
        if batches:
            return concat_batches(batches)
        return None if self.ended else NOTHING
