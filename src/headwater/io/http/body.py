"""The body of a request as columns: a JSON object, an array of objects, JSON Lines, or a text."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from headwater.data.batch import Batch, stamped
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io.json.arrays import cut_array
from headwater.io.json.columns import JsonColumns
from headwater.io.mqtt import text_column

_LINES = ("ndjson", "jsonl", "json-lines", "jsonlines", "json-seq")  #: in the content type of JSON Lines
_NEWLINE, _OPEN, _FIRST = 10, b"{", b"["


@dataclass(slots=True)
class Body:
    """What a request brought."""

    batch: Batch
    unfit: list[tuple[int, str, str]] = field(
        default_factory=list
    )  #: what is no record: its number from 1, text and why


class Bodies:
    """Reads bodies as records of one schema; any number of threads may.

    >>> bodies = Bodies(Schema.of({"id": str, "x": float}), "json")
    >>> bodies.read(b'[{"id": "a", "x": 1}, {"id": 2}]', "application/json").unfit
    [(2, '{"id": 2}', 'id: expected text, got int')]
    """

    def __init__(self, schema: Schema, payload: str) -> None:
        self._schema = schema
        self._columns = None if payload == "text" else JsonColumns(schema)

    def read(self, body: bytes, content_type: str) -> Body:
        """Return the records of a body; raises InputError for one that has no form which could hold any."""
        if self._columns is None:
            return Body(self._text(body))
        texts, shift = _texts(body, content_type)
        unfit: list[tuple[int, str, str]] = []

        def refuse(number: int, text: bytes, reason: str) -> None:
            if text.strip():  # a blank line is nothing
                unfit.append((number + 1 + shift, text.decode(errors="replace").strip(" \t\r\n"), reason))

        columns, rows = self._columns.of(texts, refuse)
        count = len(texts) if rows is None else len(rows)
        return Body(Batch(columns, count, stamped(count)), unfit)

    def _text(self, body: bytes) -> Batch:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise InputError("the body is not UTF-8 text") from None
        return Batch.of({text_column(self._schema, ()): [text]}, self._schema)


def _texts(body: bytes, content_type: str) -> tuple[Text, int]:
    """Return the objects of a body as texts, each maybe with blanks around it, and how many lines were left out."""
    start = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise InputError("the body is empty: expected a JSON object, an array of objects, or JSON Lines")
    if start.startswith(_FIRST) and not any(name in content_type for name in _LINES):
        return _array(body), 0
    data = np.frombuffer(bytearray(start), np.uint8)
    ends = np.flatnonzero(data == _NEWLINE) + 1
    if not len(ends) or (not any(name in content_type for name in _LINES) and not _is_lines(start)):
        return Text(data, np.array([0, len(data)], np.int32)), 0
    if ends[-1] < len(data):
        ends = np.append(ends, len(data))
    return Text(data, np.concatenate([[0], ends]).astype(np.int32)), body[: len(body) - len(start)].count(b"\n")


def _is_lines(body: bytes) -> bool:
    """Tell JSON Lines, of which some may be no JSON, from one value on several lines."""
    first, _, rest = body.partition(b"\n")
    if first.rstrip().endswith(b"}") and rest.lstrip()[:1] in (b"", _OPEN):
        return True  # no object goes on like this
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ):  # a broken object, or lines of which one is broken
        lines = (line.strip() for line in body.split(b"\n"))
        return any(line.startswith(_OPEN) and line.endswith(b"}") for line in lines)
    return False


def _array(body: bytes) -> Text:
    data = np.frombuffer(bytearray(body.removeprefix(b"\xef\xbb\xbf")), np.uint8)
    ends = np.empty(int(np.count_nonzero(data == ord(_OPEN))) + 1, np.int32)
    count = int(cut_array(data, ends[1:]))
    if count >= 0:
        ends[0] = 0
        return Text(data, ends[: count + 1])
    try:  # what is in it is told one by one, or what is wrong with all of it
        return Text.of_bytes([bytes(each) for each in msgspec.json.decode(body, type=list[msgspec.Raw])])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
