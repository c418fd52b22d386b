"""A bridge between two sites that crash, over a network that is cut, all by a seed: what the receiver has in the end is held
against what was sent.

Both ends are the ones that ship (`Outbound` with its log, `Inbound`, and the protocol between them); the disk is the
simulated one, the network two queues of bytes. A step of the schedule is one thing at one end: records are made, a
checkpoint is begun or completed, some bytes arrive, a connection is cut, a process is killed, the power fails in the middle
of a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from headwater.data.batch import END, Batch
from headwater.data.schema import Schema
from headwater.deploy.bridge.buffer import LogBuffer
from headwater.deploy.bridge.inbound import Inbound
from headwater.deploy.bridge.messages import Message, Parser, encoded
from headwater.deploy.bridge.outbound import Outbound, Sender
from headwater.deploy.bridge.protocol import PING_S, SILENT_S
from headwater.errors import InputError
from headwater.io.log import Bounds
from headwater.sim.disk import PowerCutError, SimulatedDisk

NUMBERS = Schema.of({"n": int})
_FAULTS = ("cut", "silence", "kill sender", "kill receiver", "power", "fuse")
_STEPS = 400  #: of a trial in which things go wrong
_MOST = 20_000  #: after which a trial that does not come to its end has got stuck


@dataclass
class Trial:
    """What came of one seed."""

    seed: int
    sent: int = 0
    received: list[int] = field(default_factory=list)
    ended: bool = False
    faults: dict[str, int] = field(default_factory=dict)
    again: int = 0  #: messages that came twice and were dropped
    stuck: bool = False
    most_waiting: int = 0  #: bytes at the receiver

    @property
    def lost(self) -> int:
        """Records that were made for good and never came."""
        return len(set(range(self.sent)) - set(self.received))

    @property
    def twice(self) -> int:
        """Records that came more than once."""
        return len(self.received) - len(set(self.received))

    @property
    def is_right(self) -> bool:
        """Whether every record came once, in order, and then the end."""
        return self.ended and not self.stuck and self.received == list(range(self.sent))


class _Sender:
    """A part with checkpoints that makes numbers: `made` and the number of the checkpoint are what survives."""

    def __init__(self, trial: Trial, disk: SimulatedDisk, total: int) -> None:
        self._disk, self._total = disk, total
        self._saved = (
            -1,
            0,
            False,
        )  #: the last complete checkpoint: its number, numbers made, whether the end was said
        self._prepared: tuple[int, int, bool] | None = None
        self.end: Sender | None = None

    def start(self) -> None:
        number, self.made, self.said_end = self._saved
        self._number, self._prepared = number, None
        buffer = LogBuffer("bridge", Bounds(), after=number, disk=self._disk)
        self.outbound = Outbound(buffer, parts=True, limit_bytes=10**9)
        self.outbound.pause = lambda seconds: None
        self.end = self.outbound.sender("numbers")

    def stop(self) -> None:
        self.end = None

    def work(self, random: Random) -> None:
        """Make some numbers, or say that there are no more."""
        assert self.end is not None
        count = min(random.choice([1, 3, 50]), self._total - self.made)
        if count:
            self.outbound.put(Batch.of({"n": list(range(self.made, self.made + count))}, NUMBERS, created_ns=0))
            self.made += count
        elif not self.said_end:
            self.outbound.put(Batch.of_watermark(END))
            self.said_end = True

    def checkpoint(self) -> None:
        """Prepare a checkpoint, or complete the one that is prepared."""
        assert self.end is not None
        if self._prepared is None:
            self._number += 1
            self.outbound.prepare(self._number)
            self._prepared = (self._number, self.made, self.said_end)
        else:
            self._saved, self._prepared = self._prepared, None
            self.outbound.commit(self._saved[0])

    @property
    def done(self) -> bool:
        return self._saved[2]


class _Receiver:
    """A part with checkpoints that keeps what comes."""

    def __init__(self) -> None:
        self._saved: tuple[dict[str, Any], list[int]] = ({}, [])
        self.end: Inbound | None = None

    def start(self) -> None:
        position, received = self._saved
        self.received = list(received)
        self.end = Inbound("numbers", NUMBERS, window=4000, **position)

    def stop(self) -> None:
        self.end = None

    def work(self, random: Random) -> None:
        assert self.end is not None
        batch = self.end.read(random.choice([1, 10, 100]), 0)
        if batch is not None and batch.length:
            self.received += batch["n"].tolist()

    def checkpoint(self) -> None:
        assert self.end is not None
        arrivals = self.end.arrivals
        position = {"life": self.end.machine.life, "next": arrivals.handed, "ended": arrivals.ended}
        self._saved = position, list(self.received)
        self.end.commit(arrivals.handed)

    @property
    def ended(self) -> bool:
        return bool(self._saved[0].get("ended"))


class _Wire:
    """A connection: what each end has sent and the other not read. Bytes come in any pieces, in order."""

    def __init__(self, ends: dict[str, Any], now_s: float) -> None:
        self.ends = ends
        self._parsers = {name: Parser() for name in ends}
        self._bytes = {name: bytearray() for name in ends}  #: on their way to it
        for name, end in ends.items():
            self.say(name, end.connected(now_s))

    def say(self, name: str, messages: list[Message]) -> None:
        other = next(each for each in self.ends if each != name)
        for message in messages:
            for piece in encoded(message):
                self._bytes[other] += piece

    def push(self, name: str) -> None:
        self.say(name, self.ends[name].next())

    def carry(self, name: str, count: int, now_s: float) -> None:
        """Let some bytes come to an end."""
        data = bytes(self._bytes[name][:count])
        del self._bytes[name][:count]
        for message in self._parsers[name].feed(data):
            self.say(name, self.ends[name].heard(message, now_s))


class _World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trial = Trial(seed, sent=self.random.choice([10, 200, 1000]))
        self.disk = SimulatedDisk(self.random, chances=self.random.choice([{}, {"write": 0.02, "fsync": 0.02}]))
        self.sender, self.receiver = _Sender(self.trial, self.disk, self.trial.sent), _Receiver()
        self.wire: _Wire | None = None
        self.now_s = 0.0
        self.calm = False

    def run(self) -> Trial:
        steps = 0
        while not (self.calm and self.receiver.ended and self.sender.end and self.sender.outbound.is_done()):
            steps += 1
            self.calm = steps > _STEPS
            if steps > _MOST:
                self.trial.stuck = True
                break
            if self.calm:
                self.disk.chances, self.disk.fuse = {}, None
            self.now_s += self.random.choice([0.0, 0.001, PING_S / 4])
            self._step()
        self.trial.received, self.trial.ended = self.receiver.received, self.receiver.ended
        return self.trial

    def _step(self) -> None:
        self._start()
        if not self.calm and self.random.random() < 0.04:
            self._fault(self.random.choice(_FAULTS))
            return
        try:
            self._move(self.random.choice(["sender", "receiver", "save", "keep", "carry", "carry", "carry", "tick"]))
        except PowerCutError:
            self.disk.fuse = None
            self._lose_power()
        except InputError:
            pass  # a disk that fails: this checkpoint comes to nothing, or the records are put once more
        if self.receiver.end is not None:
            self.trial.again = max(self.trial.again, self.receiver.end.machine.again)

    def _start(self) -> None:
        if self.sender.end is None:
            try:
                self.sender.start()
            except InputError:
                self.disk.kill()
            except PowerCutError:
                self.disk.fuse = None
                self._lose_power()
        if self.receiver.end is None:
            self.receiver.start()
        if self.wire is None and self.sender.end is not None and self.random.random() < 0.3:
            self.wire = _Wire({"sender": self.sender.end, "receiver": self.receiver.end}, self.now_s)

    def _move(self, what: str) -> None:
        if self.sender.end is None or self.receiver.end is None:
            return
        if what == "sender":
            self.sender.work(self.random)
        elif what == "receiver":
            self.receiver.work(self.random)
        elif what == "save":
            self.sender.checkpoint()
        elif what == "keep":
            self.receiver.checkpoint()
        elif self.wire is not None:
            name = self.random.choice(["sender", "receiver"])
            if what == "tick":
                messages = self.wire.ends[name].machine.tick(self.now_s)
                if messages is None:
                    self.wire = None
                else:
                    self.wire.say(name, messages)
            else:
                self.wire.push(name)
                self.wire.carry(name, self.random.choice([1, 7, 100, 10_000]), self.now_s)

    def _fault(self, what: str) -> None:
        self.trial.faults[what] = self.trial.faults.get(what, 0) + 1
        if what == "cut":
            self.wire = None
        elif what == "silence":
            self.now_s += SILENT_S + 1
        elif what == "kill sender":
            self.disk.kill()
            self.sender.stop()
            self.wire = None
        elif what == "kill receiver":
            self.receiver.stop()
            self.wire = None
        elif what == "power":
            self._lose_power()
        else:
            self.disk.fuse = self.random.randrange(1, 40)

    def _lose_power(self) -> None:
        self.disk.crash()
        self.sender.stop()
        self.wire = None


def trial(seed: int) -> Trial:
    """Play one seed."""
    return _World(seed).run()
