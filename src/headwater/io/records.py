"""JSON objects as records: typed decoding straight into columns, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np

from headwater.data.batch import Batch, stamped
from headwater.data.column import Array, Column, Nullable, Text, column_of, parts
from headwater.data.decimal import widened
from headwater.data.schema import DTYPES, Schema, Type
from headwater.data.timestamps import is_moment, micros_of_text, moments_as_text
from headwater.errors import InputError
from headwater.io.memory import guess_type

Refuse = Callable[[int, bytes, str], None]  #: takes the number of a text, the text and why it is no record

_LEAST, _MOST = -(2**63), 2**63 - 1
_Int64 = Annotated[int, msgspec.Meta(ge=_LEAST, le=_MOST)]


class _Micros(int):
    """A moment, as text or as a number."""


_TYPES: dict[Type, Any] = {
    "bool": bool | None,
    "int": _Int64 | None,
    "float": float | None,
    "float32": float | None,
    "text": str | None,
    "time": _Micros | None,
    "any": Any,
}
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonDecoder:
    """Turns JSON texts into batches of one schema.

    A field that an object lacks is missing (null), one that the schema lacks is passed over.

    >>> decoder = JsonDecoder(Schema.of({"id": str, "x": float}))
    >>> decoder.batch([b'{"id": "a", "x": 1}', b'{"id": 2}'], refuse=print).rows()
    1 b'{"id": 2}' id: expected text, got int
    [{'id': 'a', 'x': 1.0}]
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        fields = [
            (f"f{place}", _TYPES[kind], msgspec.field(name=name, default=None))
            for place, (name, kind) in enumerate(schema.fields)
        ]
        try:
            self._decode = msgspec.json.Decoder(
                msgspec.defstruct("Record", fields, gc=False), dec_hook=_read_moment
            ).decode
        except ValueError as error:
            raise InputError(f"a column cannot be read from JSON by its name: {error}") from None
        self._take = [attrgetter(f"f{place}") for place in range(len(schema))]

    def batch(self, texts: Sequence[bytes], refuse: Refuse) -> Batch:
        """Make a batch of the texts that are records; the others go to `refuse`."""
        try:
            records = [self._decode(text) for text in texts]
        except _BAD:
            records = [record for _, record in self.decode_each(texts, refuse)]
        return self.batch_of(records)

    def columns_of(self, texts: Text, refuse: Refuse) -> tuple[dict[str, Column], Array | None]:
        """Return the columns of the texts that are records, and which those are: None where all are."""
        lines = texts.bytes_list()
        try:
            return self.batch_of([self._decode(text) for text in lines]).columns, None
        except _BAD:
            numbered = self.decode_each(lines, refuse)
        return self.batch_of([record for _, record in numbered]).columns, np.array(
            [row for row, _ in numbered], np.int64
        )

    def decode_each(self, texts: Sequence[bytes], refuse: Refuse) -> list[tuple[int, Any]]:
        """Return the records among the texts, each with its number."""
        numbered = []
        for number, text in enumerate(texts):
            try:
                numbered.append((number, self._decode(text)))
            except _BAD as error:
                refuse(number, text, self._reason(error, text))
        return numbered

    def batch_of(self, records: Sequence[Any]) -> Batch:
        """Make a batch of decoded records."""
        columns = {
            name: _column(list(map(take, records)), kind)
            for take, (name, kind) in zip(self._take, self._schema.fields, strict=True)
        }
        return Batch(columns, len(records), stamped(len(records)))

    def _reason(self, error: Exception, text: bytes) -> str:
        if isinstance(error, UnicodeDecodeError):
            return "not UTF-8 text"
        if isinstance(error, RecursionError):
            return "nested too deeply"
        message = str(error)
        if not isinstance(error, msgspec.ValidationError):
            hint = "; JSON has no NaN, write null" if b"NaN" in text else ""
            return f"not JSON: {message.removeprefix('JSON is malformed: ')}{hint}"
        what, _, where = message.partition(" - at `$")
        return self._wrong_type(what, where.strip("`.")) if where else what.replace("`", "").lower()

    def _wrong_type(self, what: str, name: str) -> str:
        """Say 'x: expected float, got str' in the schema's own words."""
        kind = self._schema.get(name, "?")
        came = what.partition("got `")[2].rstrip("`")
        return (
            f"{name}: expected {kind}, got {came}" if came else f"{name}: {what[:1].lower()}{what[1:].replace('`', '')}"
        )


def _read_moment(kind: type, value: Any) -> _Micros:
    """Read a moment as all other formats do."""
    if isinstance(value, str):
        value = micros_of_text(value)
    if type(value) is not int:
        raise ValueError(f"expected time, got {type(value).__name__}")
    if not _LEAST <= value <= _MOST:
        raise ValueError(f"expected time, got {value}, which is beyond 64 bits")
    return _Micros(value)


def _column(values: list[Any], kind: Type) -> Column:
    """Make a column of values that are already of the right type."""
    if kind == "any":
        return column_of(values, "any")
    valid = None
    if None in values:
        valid = np.array([value is not None for value in values])
        values = [_FILL[kind] if value is None else value for value in values]
    array: Any
    if kind == "text":
        array = Text.of(values)
    elif kind == "time":
        array = np.array(values, np.int64)
    else:
        array = np.array(values, DTYPES[kind])
    return array if valid is None else Nullable(array, valid)


_FILL: dict[Type, Any] = {"bool": False, "int": 0, "float": 0.0, "float32": 0.0, "text": "", "time": 0}


def guess_kind(values: Sequence[Any]) -> Type:
    """Guess the type of a column from its JSON values; texts that all look like moments are a time."""
    kind = guess_type(values)
    if kind == "text" and values and all(map(is_moment, values)):
        return "time"
    return kind


def json_texts(column: Column) -> list[str | None]:
    """Encode each value of a column as JSON text, None where missing."""
    try:
        return [None if value is None else _encode(value).decode() for value in column.tolist()]
    except _UNFIT as error:
        raise InputError(f"a value cannot be written as JSON: {error}") from None


def json_lines(batch: Batch, schema: Schema) -> list[bytes]:
    """Encode each record as a JSON object; moments are ISO text, NaN and infinity are null."""
    names = list(schema)
    columns = [_json_values(batch[name], kind) for name, kind in schema.fields]
    try:
        return [_encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    except _UNFIT as error:
        raise InputError(f"a record cannot be written as JSON: {error}") from None


def _json_values(column: Column, kind: Type) -> list[Any]:
    if kind == "time":
        return moments_as_text(column)
    return short_floats(column) if kind == "float32" else column.tolist()


def short_floats(column: Column) -> list[Any]:
    """Return 32-bit floats as Python's, which are 64 bits wide, so that they print no more digits than 32 bits have.

    >>> short_floats(np.array([0.1, 8], np.float32))
    [0.1, 8.0]
    """
    values, valid = parts(column)
    short = widened(np.ascontiguousarray(values, np.float32))
    return short.tolist() if valid is None else Nullable(short, valid).tolist()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form: {value!r}")


_UNFIT = (TypeError, ValueError, RecursionError)
_encode = msgspec.json.Encoder(enc_hook=_plain).encode
