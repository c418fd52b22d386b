"""Messages between the server and the process of a flow: one JSON object a line, checked as it is read."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from headwater.serve.settings import Settings


class Trial(msgspec.Struct):
    """A query, and what it is tried on."""

    text: str
    stream: str
    schema: dict[str, Any] = {}
    records: list[dict[str, Any]] = []
    file: str = ""  #: that is read in place of records
    most: int = 0  #: matches of a file that are told; none looks at the text alone


class Assignment(msgspec.Struct, tag="assignment"):
    """What a process is for; the first message that it gets."""

    what: Literal["run", "warm", "check", "replay", "query", "rest"]
    file: str
    home: str  #: the folder of what is kept of the flow
    settings: Settings
    ids: list[int] = []  #: of the dead letters that are replayed; all, if there are none
    step: str | None = None  #: only those that broke this step
    changes: dict[str, Any] = {}  #: of their fields
    trial: Trial | None = None  #: the query that is tried
    text: bytes | None = None  #: what the file held when it last began, where what it holds now does not start


class Order(msgspec.Struct, tag="order"):
    """A request to a process: stop, give up at once, send its metrics, show records, or how its promise fares."""

    what: Literal["stop", "abort", "metrics", "records", "promise"]
    step: str = ""  #: whose records are shown
    limit: int = 0  #: at most so many


class Warm(msgspec.Struct, tag="warm"):
    """The flow is made, and waits for the task to run it; `why` it could not be made."""

    why: str | None = None


class Running(msgspec.Struct, tag="running"):
    """The flow runs, and looks like this."""

    graph: msgspec.Raw


class Waiting(msgspec.Struct, tag="waits"):
    """The flow cannot be started yet."""

    why: str


class Importing(msgspec.Struct, tag="imports"):
    """The flow's file is being imported, or has been."""

    over: bool = False


class Measurement(msgspec.Struct, tag="measured"):
    """A sample, once a second."""

    sample: msgspec.Raw


class Metrics(msgspec.Struct, tag="metrics"):
    """Metrics for Prometheus."""

    families: list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]


class Reply(msgspec.Struct, tag="shown"):
    """The answer to a request: records that passed a step, or how a promise fares; or why there is none."""

    content: msgspec.Raw
    why: str | None = None


class Over(msgspec.Struct, tag="over"):
    """A run's last words: its report, and what ended it."""

    how: Literal["end", "stopped", "refused", "died"]
    why: str = ""
    report: msgspec.Raw = msgspec.Raw(b"null")


class Answer(msgspec.Struct, tag="answer"):
    """The result of a check or a replay; `why` there is none."""

    why: str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    writes: list[str] = []  #: the files that the flow would have for itself


Instruction = Assignment | Order
Statement = Warm | Running | Waiting | Importing | Measurement | Metrics | Reply | Over | Answer

_instructions = msgspec.json.Decoder(Instruction)
_statements = msgspec.json.Decoder(Statement)


def line(message: Instruction | Statement) -> bytes:
    """Write a message as a line."""
    return msgspec.json.encode(message) + b"\n"


def instruction(text: bytes) -> Instruction:
    """Read what the server says."""
    message: Instruction = _instructions.decode(text)
    return message


def statement(text: bytes) -> Statement:
    """Read what the process of a flow says."""
    message: Statement = _statements.decode(text)
    return message


def raw(document: Any) -> msgspec.Raw:
    """Return a document as it goes into a message."""
    try:
        return msgspec.Raw(msgspec.json.encode(document, enc_hook=str))
    except (UnicodeEncodeError, OverflowError):  # text of a record that is no Unicode, a number beyond 64 bits
        return msgspec.Raw(json.dumps(document, default=str).encode())


def encodable(text: str) -> str:
    """Return a text as it goes into a message, whatever is in it."""
    return text.encode("utf-8", "backslashreplace").decode()
