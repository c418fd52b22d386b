"""Where the flows' messages come from: generated, from the benchmark's samples, or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headwater.data.batch import Batch, stamped
from headwater.data.column import Array, Column, Text
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.duration import Duration
from headwater.flow.endpoints import Reject
from headwater.flow.places import Place
from headwater.io import Generate
from headwater.io.rates import Rate

MESSAGES = Schema.of({"msg": int, "message": str})

_PREPARED = 2**14  # messages made before a run starts, to be sent over and over


def repeated(
    texts: Text, rate: Rate | float, *, count: int | None = None, duration: Duration | None = None
) -> Generate:
    """Send these messages over and over at a rate; each gets a number of its own, from 0 on."""
    if not len(texts):
        raise InputError("there are no messages to send")

    def make(numbers: Array) -> Mapping[str, Any]:
        return {"msg": numbers, "message": texts.take(numbers % len(texts))}

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

    return repeated(messages(stream(name, seed), 0, _PREPARED), rate, count=count, duration=duration)


class Messages:
    """Generated messages of a data set without end; at another rate, or from a file instead, if asked."""

    def __init__(self, name: str, rate: Rate | float = 1000, *, seed: int = 1) -> None:
        self.name, self.rate, self.seed = name, rate, seed

    @property
    def schema(self) -> Schema:
        """The message's number and its text."""
        return MESSAGES

    def open(self, reject: Reject) -> Any:
        """Make the messages and start to send them."""
        return generated(self.name, self.rate, seed=self.seed).open(reject)

    def at_rate(self, rate: float) -> Messages:
        """Return the same messages at another rate."""
        return Messages(self.name, rate, seed=self.seed)

    def from_file(self, path: Path) -> MessageFile:
        """Return the messages of a file instead."""
        return MessageFile(path)

    def __str__(self) -> str:
        return f"generated {self.name} messages"


class MessageFile:
    """Reads a file of messages, one to a line, and numbers them from 1 as the golden files do.

    A line may be a SenML object, alone or behind `time,` as in the samples, or a line of CSV; empty lines are
    passed over.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def schema(self) -> Schema:
        """The message's number and its text."""
        return MESSAGES

    def open(self, reject: Reject) -> _MessageReader:
        """Start at the first line."""
        return _MessageReader(self.texts())

    def claims(self, *, writing: bool) -> Place:
        """Return the file."""
        return Place.of_file(self.path)

    def at_rate(self, rate: float) -> Generate:
        """Return the messages of the file, over and over, at a rate."""
        return repeated(self.texts(), rate)

    def texts(self) -> Text:
        """Read the messages."""
        try:
            return messages_in(self.path.read_bytes())
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error

    def __str__(self) -> str:
        return str(self.path)


class _MessageReader:
    def __init__(self, texts: Text) -> None:
        self._texts, self._next = texts, 0

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        if self._next >= len(self._texts):
            return None
        texts = self._texts[self._next : self._next + limit]
        numbers = np.arange(self._next, self._next + len(texts)) + 1
        self._next += len(texts)
        columns: dict[str, Column] = {"msg": numbers, "message": texts}
        return Batch(columns, len(texts), stamped(len(texts)))

    def close(self) -> None:
        pass


def messages_in(lines: bytes) -> Text:
    """Return the messages among some lines."""
    messages = map(_without_time, lines.split(b"\n"))
    return Text.of_bytes([message for message in messages if message])


def _without_time(line: bytes) -> bytes:
    line = line.strip()
    time, comma, rest = line.partition(b",")
    return rest if comma and time.strip().isdigit() and rest.lstrip().startswith(b"{") else line
