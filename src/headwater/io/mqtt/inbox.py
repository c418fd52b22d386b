"""Messages that came and wait for the flow, and what is still to be acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headwater.data.column import concat
from headwater.io.mqtt.client import ReceivedMessages
from headwater.io.mqtt.scan import DONE, DUPLICATE, FREE, HELD, SUSPECT, TELL_AGAIN, TOLD

_PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 0x40, 0x50, 6, 0x70


@dataclass
class PendingAcks:
    """Messages that the flow has: numbers and QoS of those to acknowledge, up to a position."""

    position: int
    session: int
    messages: ReceivedMessages


class Inbox:
    """Messages in the order in which they came, counted from 0; what the flow took is acknowledged when it commits.

    The numbers that a broker gives to messages hold as long as its session: who comes back to a broker that lost it
    acknowledges nothing of the old. A message that comes again, since the broker could not be told that it is here, is
    taken once.
    """

    def __init__(self, numbers: Sequence[int] = ()) -> None:
        """Begin with the numbers of messages that an earlier run has, if the broker still has its session."""
        self.states = np.zeros(1 << 16, np.uint8)  #: by packet number
        self.states[list(numbers)] = TOLD
        self.position = 0  #: of the first message that was not handed out
        self.waiting = self.waiting_bytes = 0
        self._waiting: deque[ReceivedMessages] = deque()
        self._unacknowledged: deque[PendingAcks] = deque()
        self._unconfirmed_payloads: dict[
            int, bytes
        ] = {}  # payloads of messages that nobody could be told of, by number
        self._again: dict[int, bytes] = {}  # payloads that the broker sends again, since it was not told, by number
        self._session = 0
        self._remembers = False  # whether somebody takes note of `known`
        self._releasing: list[bytes] = []  # PUBCOMPs of numbers that are still noted as known
        self._releases: list[bytes] = []  # of those that are left out of what was asked for last

    @property
    def is_releasing(self) -> bool:
        """Whether the broker waits until numbers are no longer noted as known."""
        return bool(self._releasing)

    def known(self) -> list[int]:
        """Return the numbers of messages of QoS 2 that were handed out, and that the broker may send again.

        Who asks keeps them, and commits then. Until that a number is not free: the next message that has it would be
        taken for the old one by who finds it noted.
        """
        self._remembers = True
        self._releases += self._releasing
        self._releasing = []
        acknowledged = np.flatnonzero(self.states == TOLD)
        pending = [_numbers_of_2(each.messages) for each in self._unacknowledged if each.session == self._session]
        return sorted({*acknowledged.tolist(), *(number for numbers in pending for number in numbers)})

    def begin(self, *, session_kept: bool) -> None:
        """Begin anew when the broker is there again."""
        if session_kept:
            pending = [pending.messages for pending in self._unacknowledged if pending.session == self._session]
            self._again = dict(self._unconfirmed_payloads)
            for messages in [*pending, *self._waiting]:
                self._again |= _payloads_by_number(messages)
        else:
            self._session += 1
            self.states[:] = FREE
            self._unconfirmed_payloads.clear()
            self._again.clear()
            self._releasing, self._releases = [], []
            self._waiting = deque(_as_qos_0(messages) for messages in self._waiting)

    def put(self, received: ReceivedMessages) -> bytes:
        """Keep messages; return what is to be answered at once."""
        answers = self._answers(received)
        suspects = received.flags & (SUSPECT | (DUPLICATE if self._again else 0))
        if np.any(suspects):
            received, more = self._without_repeats(received, np.flatnonzero(suspects))
            answers += more
        if len(received):
            self._waiting.append(received)
            self.waiting += len(received)
            self.waiting_bytes += received.size
        return answers

    def take(self, limit: int) -> ReceivedMessages | None:
        """Hand out the oldest messages."""
        runs: list[ReceivedMessages] = []
        while self._waiting and limit > 0:
            run = self._waiting.popleft()
            if len(run) > limit:
                self._waiting.appendleft(run.rows(limit, len(run)))
                run = run.rows(0, limit)
            runs.append(run)
            limit -= len(run)
        if not runs:
            return None
        messages = _concat(runs)
        self.waiting -= len(messages)
        self.waiting_bytes -= messages.size
        self.position += len(messages)
        if np.any(messages.flags & 6):
            self._unacknowledged.append(PendingAcks(self.position, self._session, messages))
        return messages

    def commit(self, position: int, *, connected: bool) -> bytes:
        """Return the acknowledgements of what was handed out before a position."""
        packets, self._releases = self._releases if connected else [], []
        while (
            self._unacknowledged and self._unacknowledged[0].position - len(self._unacknowledged[0].messages) < position
        ):
            pending = self._unacknowledged.popleft()
            messages, beyond = pending.messages, pending.position - position
            if beyond > 0:
                rest = messages.rows(len(messages) - beyond, len(messages))
                self._unacknowledged.appendleft(PendingAcks(pending.position, pending.session, rest))
                messages = messages.rows(0, len(messages) - beyond)
            if pending.session == self._session:
                packets.append(self.acknowledgements(messages, connected=connected))
        return b"".join(packets)

    def acknowledgements(self, messages: ReceivedMessages, *, connected: bool = True) -> bytes:
        """Return the acknowledgements of these messages, or keep in mind that there is nobody to tell."""
        qos = messages.flags >> 1 & 3
        rows = np.flatnonzero(qos)
        numbers, qos = messages.numbers[rows], qos[rows]
        if not connected:
            self.states[numbers] = DONE
            self._unconfirmed_payloads |= _payloads_by_number(messages)
            return b""
        self.states[numbers] = np.where(qos == 2, TOLD, FREE)
        return packets_of(np.where(qos == 2, _PUBREC, _PUBACK), numbers)

    def _answers(self, received: ReceivedMessages) -> bytes:
        """Return what QoS 2 has us say: PUBCOMP to PUBREL, PUBREC again to a message that came again."""
        kinds, numbers = received.answers[:, 0], received.answers[:, 1].astype(np.uint16)
        rows = np.flatnonzero((kinds == _PUBREL) | (kinds == TELL_AGAIN))
        if not len(rows):
            return b""
        answers = packets_of(np.where(kinds[rows] == _PUBREL, _PUBCOMP, _PUBREC), numbers[rows])
        if not self._remembers or np.all(kinds[rows] != _PUBREL):
            return answers
        is_release = kinds[rows] == _PUBREL
        self._releasing.append(packets_of(np.full(int(is_release.sum()), _PUBCOMP), numbers[rows][is_release]))
        return packets_of(np.full(int((~is_release).sum()), _PUBREC), numbers[rows][~is_release])

    def _without_repeats(
        self, received: ReceivedMessages, suspects: NDArray[np.int64]
    ) -> tuple[ReceivedMessages, bytes]:
        """Leave out what is here already; return also what is to be acknowledged of that."""
        keep, answers = np.ones(len(received), np.bool_), b""
        for row in suspects.tolist():
            number, flags, message = int(received.numbers[row]), int(received.flags[row]), received.rows(row, row + 1)
            payload = self._again.pop(number, None)
            if flags & DUPLICATE and payload is not None and payload == message.payloads.bytes_list()[0]:
                keep[row] = False
                if self._unconfirmed_payloads.pop(number, None) is not None:
                    answers += self.acknowledgements(message)
                elif not flags & SUSPECT:  # it was acknowledged since the broker came back, and has its answer
                    self.states[number] = FREE
            elif flags & SUSPECT:  # its number holds for another message now
                self._unconfirmed_payloads.pop(number, None)
                self.states[number] = HELD
        messages = received.at(np.flatnonzero(keep))
        return replace(messages, flags=messages.flags & np.uint8(15)), answers


def _payloads_by_number(messages: ReceivedMessages) -> dict[int, bytes]:
    rows = np.flatnonzero(messages.flags & 6)
    return dict(zip(messages.numbers[rows].tolist(), messages.payloads.take(rows).bytes_list(), strict=True))


def packets_of(firsts: NDArray[np.int64], numbers: NDArray[np.uint16]) -> bytes:
    """Return acknowledgements, one packet of four bytes for each number."""
    out = np.empty((len(numbers), 4), np.uint8)
    out[:, 0], out[:, 1] = firsts, 2
    out[:, 2], out[:, 3] = numbers >> 8, numbers & 255
    return out.tobytes()


def _numbers_of_2(messages: ReceivedMessages) -> list[int]:
    numbers: list[int] = messages.numbers[messages.flags >> 1 & 3 == 2].tolist()
    return numbers


def _as_qos_0(messages: ReceivedMessages) -> ReceivedMessages:
    """Return messages as if they were of QoS 0: nobody waits for their acknowledgement any more."""
    return replace(messages, flags=messages.flags & np.uint8(0xF9))


def _concat(runs: list[ReceivedMessages]) -> ReceivedMessages:
    if len(runs) == 1:
        return runs[0]
    return ReceivedMessages(
        concat([run.payloads for run in runs]),  # type: ignore[arg-type]
        concat([run.topics for run in runs]),  # type: ignore[arg-type]
        np.concatenate([run.numbers for run in runs]),
        np.concatenate([run.flags for run in runs]),
        runs[0].answers[:0],
        np.concatenate([run.arrived_ns for run in runs]),
    )
