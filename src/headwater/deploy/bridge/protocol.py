"""What the two ends of a bridge decide: events in, messages out; no socket, thread or clock in between.

The sender numbers its messages, keeps each until the receiver has it for good, and goes on after any cut where the receiver
says. The receiver takes each number once and in order, and says how much it has room for (credit). Either may be gone at any
moment: what the sender has on disk, and the receiver in its checkpoint, is all that they need to agree again.
"""

from __future__ import annotations

from headwater.deploy.bridge.messages import VERSION, Ack, Data, Hello, Message, Ping, Refuse, Resume

PING_S = 0.5  #: how often an end says that it is there
SILENT_S = 2.0  #: after which the other is taken for gone


class RefusedError(Exception):
    """The two ends can never agree; carries why."""


class _End:
    """What both ends do: greet, and notice that nobody is there any more."""

    role = ""

    def __init__(self, bridge: str) -> None:
        self.bridge = bridge
        self._greeted = False
        self._heard_s = self._sent_s = 0.0

    def _connected(self, now_s: float) -> None:
        self._greeted = False
        self._heard_s = self._sent_s = now_s

    def note_sent(self, now_s: float) -> None:
        """Take note that something was sent."""
        self._sent_s = now_s

    def tick(self, now_s: float) -> list[Message] | None:
        """Return what to say for the time being; None if nobody is there, and the connection is to be given up."""
        if now_s - self._heard_s > SILENT_S:
            return None
        if now_s - self._sent_s >= PING_S:
            self._sent_s = now_s
            return [Ping()]
        return []

    def _check(self, hello: Hello) -> None:
        """Raise RefusedError for somebody who is not the other end."""
        if hello.version != VERSION:
            raise RefusedError(
                f"the other end of bridge '{self.bridge}' speaks version {hello.version} of the protocol, this one "
                f"{VERSION}: install the same Headwater at both sites"
            )
        if hello.bridge != self.bridge or hello.role == self.role:
            raise RefusedError(
                f"this is the {self.role} of bridge '{self.bridge}'; got the {hello.role} of '{hello.bridge}'"
            )
        self._greeted = True


class Sending(_End):
    """The end that has the records. `end` is the number behind the last message that may be sent."""

    role = "sender"

    def __init__(self, bridge: str, *, life: str, began: int, durable: bool, safe: int = 0, end: int = 0) -> None:
        super().__init__(bridge)
        self.life, self.began, self.durable = life, began, durable
        self.safe = safe  #: all before it is not needed any more
        self.end = end
        self.next = safe  #: the number to be sent next, once the receiver has said where it is
        self._follows = safe  #: the number behind the last that was sent
        self._is_open = False
        self._sent = self._credit = 0  #: bytes, since the connection was made

    def connected(self, now_s: float) -> list[Message]:
        """Greet; nothing else is said before the receiver has said where it is."""
        self._connected(now_s)
        self._is_open = False
        return [Hello(self.bridge, self.role, self.life, self.began, self.safe, self.durable)]

    def heard(self, message: Message, now_s: float) -> list[Message]:
        """Take what the receiver says; raises RefusedError if it wants what is gone."""
        self._heard_s = now_s
        match message:
            case Hello():
                self._check(message)
            case Resume(at, safe, credit) if self._greeted:
                self._resume(at, safe, credit)
            case Ack(safe, credit) if self._is_open:
                self.safe, self._credit = max(self.safe, safe), max(self._credit, credit)
            case Refuse(why):
                raise RefusedError(why)
        return []

    def _resume(self, at: int, safe: int, credit: int) -> None:
        if at < self.safe:
            raise RefusedError(
                f"the receiver of bridge '{self.bridge}' goes on at {at:,}, and all before {self.safe:,} is gone since it "
                "was said to be safe there: was its checkpoint taken back to an older one?"
            )
        self.safe, self._credit, self._sent = max(self.safe, safe), credit, 0
        self.next = self._follows = at
        self._is_open = True

    @property
    def wants(self) -> int:
        """How many bytes may be sent now; one message may pass it."""
        return max(0, self._credit - self._sent) if self._is_open and self.next < self.end else 0

    def send(self, number: int, frame: bytes | memoryview) -> Data:
        """Return the message for what comes next at or behind `next`: there is nothing in between."""
        message = Data(number, self._follows, frame)
        self.next = self._follows = number + 1
        self._sent += len(frame)
        return message

    def skip(self, to: int) -> None:
        """Take note that there is nothing to be sent before a number."""
        self.next = max(self.next, to)


class Receiving(_End):
    """The end that takes the records; `next` is the number that it has not had, `safe` what it has for good."""

    role = "receiver"

    def __init__(self, bridge: str, *, window: int, life: str = "", next: int = 0) -> None:
        super().__init__(bridge)
        self._window = window
        self.life = life  #: of the sender, as far as known; a receiver that knows none begins where the sender does
        self.next = self.safe = next
        self.again = 0  #: messages that came although they had come before
        self._waiting = 0  #: bytes that are here and not taken
        self._early = self._taken = self._credit = (
            0  #: those that were when the connection was made; taken, granted since
        )
        self._got = 0  #: bytes that came since the connection was made
        self._acknowledged = next
        self._is_open = False

    def connected(self, now_s: float) -> list[Message]:
        """Greet."""
        self._connected(now_s)
        self._is_open = False
        return [Hello(self.bridge, self.role)]

    def heard(self, message: Message, now_s: float) -> tuple[list[Message], Data | None]:
        """Take what the sender says; return what to answer, and the message that is to be handed on."""
        self._heard_s = now_s
        match message:
            case Hello():
                self._check(message)
                return [self._resume(message)], None
            case Data() if self._is_open:
                return [], self._take(message)
            case Refuse(why):
                raise RefusedError(why)
        return [], None

    def _resume(self, hello: Hello) -> Resume:
        if not self.life:
            self.next = self.safe = hello.safe
        elif hello.life != self.life and hello.began < self.next:
            if hello.durable:
                raise RefusedError(
                    f"the sender of bridge '{self.bridge}' begins at {hello.began:,}, and {self.next:,} messages of it are "
                    "here: it has lost its buffer, or runs without the checkpoint it had; begin this part anew too"
                )
            self.next = hello.began  # what it had not on disk when it crashed is here; its numbers are given anew
            self.safe = min(self.safe, self.next)
        self.life = hello.life
        self._early, self._taken, self._got, self._acknowledged = self._waiting, 0, 0, self.safe
        self._credit = max(0, self._granted())
        self._is_open = True
        return Resume(self.next, self.safe, self._credit)

    def _take(self, message: Data) -> Data | None:
        if self._got >= self._credit:  # one message may pass it, and none that follows
            raise RefusedError(
                f"bridge '{self.bridge}': {self._got:,} bytes have come, where there was room for {self._credit:,}, and "
                "more follow: the sender does not heed what it is granted"
            )
        self._got += len(message.frame)
        if message.number < self.next:
            self.again += 1
            return None
        if message.follows > self.next:
            raise RefusedError(
                f"bridge '{self.bridge}': {message.number:,} follows {message.follows:,}, and {self.next:,} has not come"
            )
        self.next = message.number + 1
        self._waiting += len(message.frame)
        return message

    def note_taken(self, nbytes: int) -> None:
        """Take note that so many bytes were handed on: there is room again."""
        self._waiting -= nbytes
        self._taken += nbytes

    def commit(self, safe: int) -> None:
        """Take note that all before a number is here for good."""
        self.safe = max(self.safe, safe)

    def due(self) -> list[Message]:
        """Return what the sender should know by now: that something is safe, or that there is much room again."""
        if not self._is_open:
            return []
        credit = self._granted()
        if self.safe == self._acknowledged and credit - self._credit < self._window // 4:
            return []
        self._acknowledged, self._credit = self.safe, credit
        return [Ack(self.safe, credit)]

    def _granted(self) -> int:
        return self._window - self._early + self._taken
