"""SenML messages, a batch at a time, into columns of a fixed set of names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import TextArrays, TextColumn
from headwater.errors import FlowError
from headwater.io.senml.form import Form, form_of, read_form
from headwater.io.senml.scan import gather_spans, scan

ValueType = Literal["float", "text"]

_LATEST_MS = 2**63 // 1000 - 1  # epoch microseconds must fit an int64


class Reason(IntEnum):
    """Why a message was not understood."""

    OK = 0
    NOT_JSON = 1
    NOT_SENML = 2
    BAD_TIME = 3
    MISSING = 4
    TWICE = 5
    NO_VALUE = 6
    NOT_A_NUMBER = 7
    NOT_FINITE = 8


class ParsedMessages(NamedTuple):
    """What a batch of messages said; where `status` is not 0, time and values are 0 and texts empty."""

    time_ms: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64] | TextArrays]
    status: NDArray[np.int64]


class SenmlParser:
    """Reads messages `{"e": [{"n": name, "v": value}, ...], "bt": time}`, one column for each named field.

    A value is `v`, else `sv`; both may be strings or numbers, and a float field is read as Python's `float`
    reads. `bt` is milliseconds since 1970, as a number or a string. Names outside `fields` are passed over; a
    name that is missing or comes twice, a value that is not a finite number, and anything that is not JSON
    give a status.

    >>> from headwater.data.column import Text
    >>> parser = SenmlParser({"temp": "float"})
    >>> parsed = parser.parse(Text.of(['{"e":[{"n":"temp","v":"8.5"}],"bt":60000}', '{"e":[]}']))
    >>> parsed.columns["temp"], parsed.time_ms
    (array([8.5, 0. ]), array([60000,     0]))
    >>> [parser.explain(status) for status in parsed.status]
    ['', "base time 'bt' is missing or not a whole number of milliseconds"]
    """

    def __init__(self, fields: Mapping[str, ValueType]) -> None:
        if not 0 < len(fields) <= 62:
            raise FlowError(f"a SenML parser reads 1 to 62 fields; got {len(fields)}")
        self.fields = dict(fields)
        floats = [name for name, kind in fields.items() if kind == "float"]
        self._names = floats + [name for name, kind in fields.items() if kind == "text"]
        self._float_count = len(floats)
        encoded = [name.encode() for name in self._names]
        self._name_bytes = np.frombuffer(b"".join(encoded), np.uint8)
        self._name_ends = np.cumsum([0] + [len(name) for name in encoded]).astype(np.int32)
        self._form: Form | None = None  # of most messages, as far as is known
        self._misses, self._patience = 0, 1

    def parse(self, messages: TextColumn) -> ParsedMessages:
        """Read a text column of messages."""
        data, offsets = messages.data, messages.offsets
        count, texts_wanted = len(offsets) - 1, len(self._names) - self._float_count
        values = np.empty((self._float_count, count))
        spans = np.empty((texts_wanted, count, 2), np.int64)
        times, status = np.empty(count, np.int64), np.zeros(count, np.int64)
        sure = np.zeros(count, np.bool_)
        if self._scan(data, offsets, values, spans, times, sure):
            data = self._read_with_care(data, offsets, np.flatnonzero(~sure), values, spans, times, status)
        columns: dict[str, NDArray[np.float64] | TextArrays] = {}
        for field, name in enumerate(self._names):
            if field < self._float_count:
                columns[name] = values[field]
            else:
                columns[name] = TextArrays(*gather_spans(data, spans[field - self._float_count]))
        return ParsedMessages(times, {name: columns[name] for name in self.fields}, status)

    def _scan(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int32],
        values: NDArray[np.float64],
        spans: NDArray[np.int64],
        times: NDArray[np.int64],
        sure: NDArray[np.bool_],
    ) -> int:
        # Reads by the form of earlier messages what has it, and scans the rest; returns how many are still not sure.
        form, missed = self._form, len(sure)
        if form is not None:
            missed = read_form(data, offsets, form.pieces, form.ends, form.fields, values, spans, times, sure)
        if not missed:
            return 0
        others = np.flatnonzero(~sure) if 2 * missed > len(sure) else None
        unsure = scan(data, offsets, self._name_bytes, self._name_ends, values, spans, times, sure)
        if others is not None and unsure < missed:
            self._misses += 1
            if self._misses >= self._patience:  # forms that change all the time are not worth learning each time
                row = int(others[sure[others]][0])
                self._form = form_of(data[offsets[row] : offsets[row + 1]].tobytes(), self._names)
                self._misses, self._patience = 0, min(2 * self._patience, 1024)
        return unsure

    def explain(self, status: int) -> str:
        """Say in words what a status means; nothing for 0."""
        reason, name = Reason(int(status) & 0xFF), self._names[int(status) >> 8]
        return {
            Reason.OK: "",
            Reason.NOT_JSON: "not JSON",
            Reason.NOT_SENML: "no SenML: expected an object with a list 'e' of objects that have a name 'n'",
            Reason.BAD_TIME: "base time 'bt' is missing or not a whole number of milliseconds",
            Reason.MISSING: f"{name!r} is missing",
            Reason.TWICE: f"{name!r} is there twice",
            Reason.NO_VALUE: f"{name!r} has neither 'v' nor 'sv'",
            Reason.NOT_A_NUMBER: f"{name!r} is not a number",
            Reason.NOT_FINITE: f"{name!r} is not finite",
        }[reason]

    def _read_with_care(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int32],
        rows: NDArray[np.int64],
        values: NDArray[np.float64],
        spans: NDArray[np.int64],
        times: NDArray[np.int64],
        status: NDArray[np.int64],
    ) -> NDArray[np.uint8]:
        # Fills in what the compiled scan was not sure of, and returns the bytes that `spans` now points into.
        more = bytearray()
        for row in rows:
            raw = data[offsets[row] : offsets[row + 1]].tobytes()
            try:
                times[row], numbers, texts = self._read(raw)
            except _RefusedError as refusal:
                status[row] = refusal.status
                times[row], values[:, row], spans[:, row] = 0, 0, 0
                continue
            values[:, row] = numbers
            for field, text in enumerate(texts):
                spans[field, row] = len(data) + len(more), len(data) + len(more) + len(text)
                more += text
        return np.concatenate([data, np.frombuffer(bytes(more), np.uint8)]) if more else data

    def _read(self, raw: bytes) -> tuple[int, list[float], list[bytes]]:
        document = _json(raw)
        entries = document.get("e") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise _RefusedError(Reason.NOT_SENML)
        values: dict[str, Any] = {}
        for entry in entries:
            name = entry.get("n") if isinstance(entry, dict) else None
            if type(name) is not str:
                raise _RefusedError(Reason.NOT_SENML)
            if name in self.fields:
                field = self._names.index(name)
                if name in values:
                    raise _RefusedError(Reason.TWICE, field)
                value = entry.get("v")
                values[name] = entry.get("sv") if value is None else value
        time_ms = _base_time(document.get("bt"))
        fields = [self._value(field, name, values) for field, name in enumerate(self._names)]
        return time_ms, fields[: self._float_count], fields[self._float_count :]

    def _value(self, field: int, name: str, values: Mapping[str, Any]) -> Any:
        if name not in values:
            raise _RefusedError(Reason.MISSING, field)
        text = values[name]
        if text is None:
            raise _RefusedError(Reason.NO_VALUE, field)
        try:
            if not isinstance(text, str):
                raise _RefusedError(Reason.NOT_A_NUMBER if field < self._float_count else Reason.NO_VALUE, field)
            if field >= self._float_count:
                return text.encode()
            value = float(text)
        except UnicodeEncodeError as error:  # half of a surrogate pair: JSON's grammar has it, Unicode does not
            raise _RefusedError(Reason.NOT_JSON, field) from error
        except ValueError as error:
            raise _RefusedError(Reason.NOT_A_NUMBER, field) from error
        if not math.isfinite(value):
            raise _RefusedError(Reason.NOT_FINITE, field)
        return value


class _RefusedError(Exception):
    def __init__(self, reason: Reason, field: int = 0) -> None:
        self.status = int(reason) | field << 8


class _Number(str):
    """A number as it was written, told apart from a string of the same letters."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), parse_float=_Number, parse_int=_Number, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _RefusedError(Reason.NOT_JSON) from error


def _base_time(text: Any) -> int:
    try:
        if isinstance(text, str) and -_LATEST_MS <= (time_ms := int(text)) <= _LATEST_MS:
            return time_ms
    except ValueError:
        pass
    raise _RefusedError(Reason.BAD_TIME)
