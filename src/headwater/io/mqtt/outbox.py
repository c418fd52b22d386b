"""Messages on their way to a broker, until it has them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.data.column import Text
from headwater.io.mqtt.frame import NUMBERS, first_flying, publishes
from headwater.io.mqtt.inbox import packets_of
from headwater.io.mqtt.packets import PUBCOMP, PUBREC
from headwater.io.mqtt.reasons import FAILED, IN_USE, NOT_FOUND

_FLYING, _RELEASED = 1, 2  # sent; and of QoS 2: here, says the broker
_PIECE = 1 << 18  # bytes to offer to the network at once
_DUPLICATE = 0x08
_PUBREL = 0x62


class Packets(NamedTuple):
    """Packets in a row: message `first` begins at byte `start`, and each ends where the next begins."""

    data: NDArray[np.uint8]
    start: int
    ends: NDArray[np.int64]
    first: int

    @property
    def after(self) -> int:
        """The message that follows."""
        return self.first + len(self.ends)

    @property
    def size(self) -> int:
        """Bytes of the packets."""
        return int(self.ends[-1]) - self.start

    def rows(self, start: int, stop: int) -> Packets:
        """Return some of the packets, without copying."""
        return Packets(self.data, self.start_of(start), self.ends[start:stop], self.first + start)

    def start_of(self, row: int) -> int:
        """Return where a packet begins."""
        return int(self.ends[row - 1]) if row else self.start


class Outbox:
    """Packets in the order in which they were written, counted from 0: `done` ≤ `sent` ≤ `added`.

    With QoS 0 a message is done when the network has it, else when the broker says so. Then at most as many are on their
    way as the broker wants, and after a cut those that are not done go out again, marked as repeated where the broker kept
    the session.
    """

    def __init__(self, qos: int, retain: bool, version: int, window: int) -> None:
        self._first = 0x30 | qos << 1 | retain
        self._qos = qos
        self._no_properties = Text.of_bytes([b"\x00" if version == 5 else b""])
        self._most = window
        self._window = window
        self.added = self.sent = self.done = 0
        self.waiting_bytes = 0  #: of runs with messages that are not done
        self._unsent: deque[Packets] = deque()
        self._flying: deque[Packets] = deque()
        self._at = 0  # byte of the first unsent run that goes next
        self._states = np.zeros(NUMBERS + 1, np.uint8)  # by packet number

    @property
    def waiting(self) -> int:
        """Messages that are not done."""
        return self.added - self.done

    @property
    def largest(self) -> int:
        """Bytes of the largest packet that is not done."""
        runs = [*self._flying, *self._unsent]
        return max((int(np.max(np.diff(run.ends, prepend=run.start))) for run in runs), default=0)

    def add(self, payloads: Text, topics: Text, properties: Text | None = None) -> None:
        """Make packets of messages; one topic may serve all. Properties are as they stand in MQTT 5's packets."""
        packet_properties = self._no_properties if properties is None else properties
        data, ends = publishes(
            payloads.data,
            payloads.offsets,
            topics.data,
            topics.offsets,
            packet_properties.data,
            packet_properties.offsets,
            self._first,
            self.added,
        )
        self._unsent.append(Packets(data, 0, ends, self.added))
        self.waiting_bytes += len(data)
        if len(self._unsent) == 1:
            self._at = 0
        self.added += len(ends)

    def next_piece(self) -> memoryview | None:
        """Return packets that may go out, from where the last piece was left."""
        if not self._unsent:
            return None
        run = self._unsent[0]
        stop = self._at + _PIECE
        if self._qos:
            count = self.done + self._window - run.first
            if count < len(run.ends):
                stop = min(stop, run.start_of(max(count, 0)))
        piece = run.data.data[self._at : min(stop, int(run.ends[-1]))]
        return piece if len(piece) else None

    @property
    def midway(self) -> bool:
        """Whether a packet went out in part."""
        if not self._unsent or self._at == self._unsent[0].start:
            return False
        ends = self._unsent[0].ends
        return bool(ends[np.searchsorted(ends, self._at)] != self._at)

    def advance(self, count: int) -> None:
        """So many bytes of the piece went out."""
        run = self._unsent[0]
        self._at += count
        before, self.sent = self.sent, run.first + int(np.searchsorted(run.ends, self._at, "right"))
        if self._qos:
            stop = min(run.after, self.sent + 1)  # a packet of which a part went out may reach the broker yet
            self._states[np.arange(max(before, run.first), stop) % NUMBERS + 1] = _FLYING
        else:
            self.done = self.sent
        if self.sent == run.after:
            self._unsent.popleft()
            self._at = self._unsent[0].start if self._unsent else 0
            if self._qos:
                self._flying.append(run)
            else:
                self.waiting_bytes -= run.size

    def take_answers(self, answers: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
        """Take acknowledgements; return what to say to them, and which of them say no.

        After a cut two codes from 128 on say yes: the number of a message of QoS 2 that is sent again is in use, since it
        arrived before, or is not found any more, since the broker was done with it.
        """
        kinds, numbers, reasons = answers[:, 0], answers[:, 1], answers[:, 2]
        here = ((kinds == PUBREC) & (reasons == IN_USE)) | ((kinds == PUBCOMP) & (reasons == NOT_FOUND))
        is_failure = (reasons >= FAILED) & ~here
        received = (kinds == PUBREC) & ~is_failure
        self._states[numbers[~received]] = 0
        self._states[numbers[received]] = _RELEASED
        self.done = first_flying(self._states, self.done, self.sent)
        while self._flying and self._flying[0].after <= self.done:
            self.waiting_bytes -= self._flying.popleft().size
        reply = packets_of(np.full(int(received.sum()), _PUBREL), numbers[received].astype(np.uint16))
        return reply, answers[is_failure]

    def take_back(self) -> None:
        """Take note that the connection is lost: a packet that went out in part goes again from its beginning."""
        if self._qos == 0 and self._unsent:
            self._at = self._unsent[0].start_of(self.sent - self._unsent[0].first)

    def begin(self, *, session_kept: bool, window: int) -> bytes:
        """Begin when the broker has let us in; return what goes out before all messages."""
        self._window = min(window, self._most)
        if not self._qos:
            return b""
        if not session_kept:
            self._states[self._states == _RELEASED] = _FLYING  # whether it still has them, nobody knows
        flown, self._flying = [*self._flying, *self._unsent], deque()
        numbers = np.arange(self.done, self.sent)
        numbers = numbers[self._states[numbers % NUMBERS + 1] == _RELEASED] % NUMBERS + 1
        again = [run for run in flown for run in self._again(run, session_kept)]
        self._unsent = deque(again)
        self.waiting_bytes = sum(run.size for run in again)
        self._at = again[0].start if again else 0
        self.sent = max(self.done, min(self.sent, again[0].first if again else self.sent))
        return packets_of(np.full(len(numbers), _PUBREL), numbers.astype(np.uint16))

    def _again(self, run: Packets, session_kept: bool) -> list[Packets]:
        """Return what is to be sent of a run, most of which may have gone out before: as many runs as there are gaps."""
        messages = np.arange(run.first, run.after)
        state = self._states[messages % NUMBERS + 1]
        old = messages <= self.sent  # the one after the last that went out may have gone in part
        due = (messages >= self.done) & ((state == _FLYING) | (messages >= self.sent))
        starts = np.concatenate([[run.start], run.ends[:-1]])
        if session_kept:
            run.data[starts[old & due & (state == _FLYING)]] |= _DUPLICATE
        else:
            run.data[starts] &= np.uint8(0xFF ^ _DUPLICATE)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], due, [False]]).astype(np.int8)))
        return [run.rows(a, b) for a, b in edges.reshape(-1, 2).tolist()]
