"""What one end of a bridge has received: messages in order, until the flow takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.clock import now_ns
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.deploy.bridge.arrivals import NOTHING, Arrivals
from headwater.deploy.bridge.fitting import fitting
from headwater.deploy.bridge.messages import Data, Hello, Message
from headwater.deploy.bridge.protocol import Receiving, RefusedError

WINDOW = 8 * 2**20  #: bytes that may be on their way to the flow
_SKEW_NS = 10 * 10**9  #: by which the sender's clock is off, from which on that is no delay of its first word


class Inbound:
    """Takes messages from the network, and hands out batches for the flow; safe for both at once."""

    def __init__(
        self,
        bridge: str,
        schema: Schema,
        *,
        window: int = WINDOW,
        life: str = "",
        next: int = 0,
        ended: bool = False,
        idle: bool = False,
    ) -> None:
        self._schema = schema
        self.machine = Receiving(bridge, window=window, life=life, next=next)
        self._changed = threading.Condition()
        self.arrivals = Arrivals(next, ended=ended, idle=idle)
        self.priority = 0
        self._why: str | None = None
        self._skew_ns = 0  #: by which this clock is ahead of the sender's
        self._let_go = False  #: nobody is to wait here any more
        self.wake: Callable[[], None] = lambda: None  #: called when there may be something to tell the sender

    # -- for the flow -------------------------------------------------------------------------------------------------

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return about `limit` records, up to the next word about event time; None at the end.

        Raises ValueError with the reason when nothing can ever come, since the two ends do not agree.
        """
        with self._changed:
            arrivals, before = self.arrivals, self.arrivals.taken_bytes
            self._changed.wait_for(lambda: len(arrivals) or arrivals.ended or self._why or self._let_go, timeout_s)
            batch = arrivals.take(limit)
            if batch is NOTHING and self._why:
                raise ValueError(self._why)
            self.machine.note_taken(arrivals.taken_bytes - before)
        self.wake()
        return batch

    def let_go(self) -> None:
        """Have whoever waits for records return."""
        with self._changed:
            self._let_go = True
            self._changed.notify_all()

    def commit(self, number: int) -> None:
        """Take note that all before a number is safe."""
        with self._changed:
            self.machine.commit(number)
        self.wake()

    # -- for the network ----------------------------------------------------------------------------------------------

    def connected(self, now_s: float) -> list[Message]:
        """Greet the sender."""
        with self._changed:
            return self.machine.connected(now_s)

    def heard(self, message: Message, now_s: float) -> list[Message]:
        """Take what the sender says."""
        with self._changed:
            answers, data = self.machine.heard(message, now_s)
            if isinstance(message, Hello):
                self._note_clock(message.clock_ns)
            if data is not None:
                batch = self._fitting(data)
                if self._skew_ns:
                    batch.stamps += self._skew_ns
                self.arrivals.append(batch, data.number, len(data.frame))
                self._changed.notify()
        return answers

    def _fitting(self, data: Data) -> Batch:
        try:
            return fitting(bytes(data.frame), self._schema)
        except ValueError as error:
            mismatch = f"bridge '{self.machine.bridge}': message {data.number:,} is none of this stream: {error}"
            raise RefusedError(f"{mismatch}; does the other site run the same flow?") from None

    def _note_clock(self, clock_ns: int) -> None:
        """Take note of a clock that is wrong: what comes is as old as it is, and not an hour older, or of tomorrow.

        How long a record takes to its sink is measured by these stamps, and promises are judged by it.
        """
        ahead_ns = now_ns() - clock_ns if clock_ns else 0
        self._skew_ns = ahead_ns if abs(ahead_ns) > _SKEW_NS else 0

    def next(self, most_bytes: int | None = None) -> list[Message]:
        """Return what the sender should know by now."""
        with self._changed:
            return self.machine.due()

    def refuse(self, why: str) -> None:
        """Take note that the two ends do not agree: what is here is still handed out."""
        with self._changed:
            self._why = why
            self._changed.notify_all()
