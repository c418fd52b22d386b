"""SenML written as XML, into the columns that the JSON form gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NoReturn
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import TextArrays, TextColumn
from headwater.io.senml.columns import ValueType


class XmlParser:
    """Reads messages `<sensml><senml bt="..." n="temp" v="8.5"/></sensml>`, one column for each named field.

    A value is the attribute `v`, else `vs`; `bt`, in milliseconds, may stand on any of the records. Parsing
    stops at a document type: entities defined there could blow up a short message to gigabytes.

    >>> from headwater.data.column import Text
    >>> messages = Text.of(['<sensml><senml bt="60000" n="temp" v="8.5"/></sensml>', "<sensml/>"])
    >>> columns, time_ms, errors = XmlParser({"temp": "float"}).parse(messages)
    >>> columns["temp"], time_ms, errors
    (array([8.5, 0. ]), array([60000,     0]), ['', "'temp' is missing"])
    """

    def __init__(self, fields: Mapping[str, ValueType]) -> None:
        self.fields = dict(fields)

    def parse(
        self, messages: TextColumn
    ) -> tuple[dict[str, NDArray[np.float64] | TextArrays], NDArray[np.int64], list[str]]:
        """Return the columns, the base times and, for each message, what is wrong with it ('' if nothing)."""
        count = len(messages.offsets) - 1
        time_ms, errors = np.zeros(count, np.int64), [""] * count
        rows: list[dict[str, str]] = []
        for i in range(count):
            raw = messages.data[messages.offsets[i] : messages.offsets[i + 1]].tobytes()
            try:
                time_ms[i], fields = self._read(raw)
            except (ValueError, OverflowError, expat.ExpatError) as error:
                errors[i], fields = str(error), {}
            rows.append(fields)
        return {name: self._column(name, rows) for name in self.fields}, time_ms, errors

    def _read(self, raw: bytes) -> tuple[int, dict[str, str]]:
        fields: dict[str, str] = {}
        times: list[int] = []

        def element(tag: str, attributes: dict[str, str]) -> None:
            if "bt" in attributes:
                times.append(int(attributes["bt"]))
            name = attributes.get("n")
            if tag == "senml" and name in self.fields:
                if name in fields:
                    raise ValueError(f"{name!r} is there twice")
                fields[name] = self._checked(name, attributes.get("v", attributes.get("vs")))

        parser = expat.ParserCreate()
        parser.StartElementHandler = element
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.Parse(raw, True)
        missing = [name for name in self.fields if name not in fields]
        if missing or not times:
            raise ValueError(f"{(missing or ['bt'])[0]!r} is missing")
        return times[-1], fields

    def _checked(self, name: str, value: str | None) -> str:
        if value is None:
            raise ValueError(f"{name!r} has neither 'v' nor 'vs'")
        if self.fields[name] == "float" and not math.isfinite(float(value)):
            raise ValueError(f"{name!r} is not finite")
        return value

    def _column(self, name: str, rows: list[dict[str, str]]) -> NDArray[np.float64] | TextArrays:
        if self.fields[name] == "float":
            return np.array([float(row.get(name, 0)) for row in rows], np.float64)
        texts = [row.get(name, "").encode() for row in rows]
        offsets = np.cumsum([0] + [len(text) for text in texts]).astype(np.int32)
        return TextArrays(np.frombuffer(b"".join(texts), np.uint8), offsets)


def _refuse_doctype(*_: object) -> NoReturn:
    raise ValueError("a document type is not allowed in a message")
