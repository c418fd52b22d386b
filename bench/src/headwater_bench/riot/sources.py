"""Where the flows' messages come from: generated, from the benchmark's samples, or from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater.data.batch import Batch, stamped
from headwater.data.column import Array, Column, Text
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.duration import Duration
from headwater.flow.endpoints import Reject
from headwater.flow.identity import Identity
from headwater.io import Generate
from headwater.io.files import explained
from headwater.io.lines import Lines
from headwater.io.open_loop import OpenLoop, RecordsFrom
from headwater.io.open_loop_source import OpenLoopSource
from headwater.io.rates import Rate, rate_of
from headwater.io.text_file import TextFile
from headwater_bench.riot.kernels.messages import bare_messages, count_messages

MESSAGES = Schema.of({"msg": int, "message": str})

#: messages made before a run starts, to be sent over and over: those of some seconds, within bounds
_FEWEST, _MOST, _SECONDS = 2**11, 2**14, 4


def repeated(
    texts: Text, rate: Rate | float, *, count: int | None = None, duration: Duration | None = None
) -> Generate:
    """Send these messages over and over at a rate; each gets a number of its own, from 0 on."""
    if not len(texts):
        raise InputError("there are no messages to send")
    many = len(texts)
    twice = texts.take(np.arange(2 * many) % many)  # any run of so many lies in a row: handing it out copies nothing

    def make(numbers: Array) -> Mapping[str, Any]:
        count = len(numbers)
        if not 0 < count <= many or numbers[-1] - numbers[0] != count - 1:
            return {"msg": numbers, "message": texts.take(numbers % many)}
        at = int(numbers[0]) % many
        return {"msg": numbers, "message": twice[at : at + count]}

    return Generate(make, MESSAGES, rate, count=count, duration=duration)


def generated(
    name: str,
    rate: Rate | float,
    *,
    seed: int = 1,
    count: int | None = None,
    duration: Duration | None = None,
) -> Generate:
    """Send generated SenML messages of a data set at a rate.

    They are made beforehand and repeated, so that making them costs the flow no processor time.
    """
    from headwater_bench.riot.generate import messages, stream

    prepared = min(_MOST, max(_FEWEST, int(_SECONDS * rate))) if isinstance(rate, int | float) else _MOST
    return repeated(messages(stream(name, seed), 0, prepared), rate, count=count, duration=duration)


class Messages(OpenLoopSource):
    """Generated messages of a data set without end; at another rate, or from a file instead, if asked."""

    def __init__(self, name: str, rate: Rate | float = 1000, *, seed: int = 1) -> None:
        self.name, self.rate, self.seed = name, rate, seed

    @property
    def schema(self) -> Schema:
        """The message's number and its text."""
        return MESSAGES

    @property
    def open_loop(self) -> OpenLoop:
        """When messages are due."""
        return OpenLoop(rate_of(self.rate))

    def numbered(self, reject: Reject) -> tuple[RecordsFrom, int]:
        """Make the messages, in whichever process wants them."""
        return generated(self.name, self.rate, seed=self.seed).numbered(reject)

    @property
    def identity(self) -> Identity:
        """Which messages they are."""
        return {"data set": self.name, "seed": self.seed}

    def at_rate(self, rate: float) -> Messages:
        """Return the same messages at another rate."""
        return Messages(self.name, rate, seed=self.seed)

    def from_file(self, path: Path) -> MessageFile:
        """Return the messages of a file instead."""
        return MessageFile(path)

    def __str__(self) -> str:
        return f"generated {self.name} messages"


class MessageFile(TextFile):
    """Reads a file of messages, one to a line, and numbers them from 1 as the golden files do.

    A line may be a SenML object, alone or behind `time,` as in the samples, or a line of CSV; empty lines are
    passed over.
    """

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    @property
    def schema(self) -> Schema:
        """The message's number and its text."""
        return MESSAGES

    def open(self, reject: Reject, position: Any = None, end: int | None = None) -> _MessageReader:
        """Start at the first line, or after the bytes and messages that a position says."""
        return _MessageReader(Lines(self.path, position, end))

    def counted(self, data: bytes) -> int:
        """Return how many messages some bytes hold."""
        return count_messages(data)

    def at_rate(self, rate: float) -> Generate:
        """Return the messages of the file, over and over, at a rate."""
        return repeated(self.texts(), rate)

    def texts(self) -> Text:
        """Read the messages."""
        try:
            return messages_in(self.path.read_bytes())
        except OSError as error:
            raise explained(error, self.path, "read") from error


class _MessageReader:
    def __init__(self, lines: Lines) -> None:
        self._lines, self._number = lines, lines.line

    @property
    def position(self) -> list[int]:
        return [self._lines.offset, self._number]

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        lines = self._lines.take(limit, timeout_s)
        if lines is None:
            return None
        texts = _messages(lines)
        numbers = np.arange(self._number + 1, self._number + 1 + len(texts))
        self._number += len(texts)
        columns: dict[str, Column] = {"msg": numbers, "message": texts}
        return Batch(columns, len(texts), stamped(len(texts)))

    def close(self) -> None:
        self._lines.close()


def messages_in(lines: bytes) -> Text:
    """Return the messages among some lines."""
    return _messages(lines.split(b"\n"))


def _messages(lines: Sequence[bytes]) -> Text:
    texts = Text.of_bytes(lines)
    return Text(*bare_messages(texts.data, texts.offsets))
