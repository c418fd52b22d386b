"""Columns: a NumPy array, or `Text` (Arrow's layout), or `Nullable` (values and a mask)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.data.schema import DTYPES, Type
from headwater.errors import FlowError

Array = npt.NDArray[Any]

#: the types of Python values that a column stores as they are
_PLAIN: dict[str, set[type]] = {
    "bool": {bool},
    "int": {int},
    "float": {float, int},
    "float32": {float, int},
    "text": {str},
    "time": {int},
}
_MOST = np.iinfo(np.int64).max
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class Text:
    """A column of UTF-8 texts in Arrow's layout: all bytes in a row, and where each text starts.

    >>> Text.of(["a", "bcd"]).lengths()
    array([1, 3], dtype=int32)
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: Array, offsets: Array) -> None:
        self.data = data  #: uint8; may hold more than this column, which is what makes slices cheap
        self.offsets = offsets  #: int32, one more than there are texts

    @classmethod
    def of(cls, texts: Iterable[str]) -> Text:
        """Encode Python strings."""
        try:
            return cls.of_bytes([text.encode() for text in texts])
        except UnicodeEncodeError as error:
            raise FlowError(f"text {error.object!r} is not Unicode: {error.reason}") from None

    @classmethod
    def of_bytes(cls, texts: Sequence[bytes]) -> Text:
        """Take UTF-8 bytes as they are."""
        offsets = np.zeros(len(texts) + 1, np.int32)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        # a bytearray, since kernels are compiled once for arrays that can be written and again for those that cannot
        return cls(np.frombuffer(bytearray().join(texts), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: Any) -> Text:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return Text(self.data, self.offsets[start : max(start, stop) + 1])
            rows = np.arange(start, stop, step)
        rows = np.asarray(rows)
        return self.take(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows)

    def take(self, rows: Array) -> Text:
        """Gather texts by row number."""
        from headwater.data.text import gather

        return Text(*gather(self.data, self.offsets, rows.astype(np.int64, copy=False)))

    def lengths(self) -> Array:
        """Return the length of each text in bytes."""
        return np.diff(self.offsets)

    def bytes_list(self) -> list[bytes]:
        """Return the texts as Python bytes."""
        start = int(self.offsets[0])
        raw = self.data[start : self.offsets[-1]].tobytes()
        edges = (self.offsets - start).tolist()
        return [raw[a:b] for a, b in pairwise(edges)]

    def tolist(self) -> list[str]:
        """Return the texts as Python strings."""
        return [text.decode(errors="replace") for text in self.bytes_list()]

    @property
    def nbytes(self) -> int:
        """Bytes that this column's own texts and offsets take."""
        return int(self.offsets[-1] - self.offsets[0]) + self.offsets.nbytes

    def to_arrow(self) -> Any:
        """Return the same memory as an Arrow string array."""
        import pyarrow as pa

        offsets = np.ascontiguousarray(self.offsets, np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(self.data))]
        return pa.Array.from_buffers(pa.string(), len(self), buffers)

    @classmethod
    def from_arrow(cls, array: Any) -> Text:
        """Take an Arrow string array without nulls; copied, because Arrow's memory cannot be written."""
        _, offsets, data = array.buffers()
        all_offsets = np.frombuffer(offsets, np.int32) if offsets is not None else np.zeros(1, np.int32)
        raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        own_offsets = all_offsets[array.offset : array.offset + len(array) + 1]
        return cls(raw[own_offsets[0] : own_offsets[-1]].copy(), own_offsets - own_offsets[0])

    def __repr__(self) -> str:
        return f"Text({self.tolist()!r})"


class Nullable:
    """A column in which some values are missing: what lies under an invalid place has no meaning."""

    __slots__ = ("valid", "values")

    def __init__(self, values: Array | Text, valid: Array) -> None:
        self.values = values
        self.valid = valid  #: bool

    def __len__(self) -> int:
        return len(self.valid)

    def __getitem__(self, rows: Any) -> Column:
        return nullable(self.values[rows], self.valid[rows])

    def tolist(self) -> list[Any]:
        """Return Python values, None where missing."""
        return [
            value if valid else None for value, valid in zip(self.values.tolist(), self.valid.tolist(), strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of the values and the mask."""
        return int(self.values.nbytes + self.valid.nbytes)

    def __repr__(self) -> str:
        return f"Nullable({self.tolist()!r})"


Column = Array | Text | Nullable


def nullable(values: Array | Text, valid: Array) -> Column:
    """Return a nullable column, or a plain one when nothing is missing."""
    return values if valid.all() else Nullable(values, valid)


def parts(column: Column) -> tuple[Array | Text, Array | None]:
    """Return a column's values and its mask, None when nothing is missing."""
    return (column.values, column.valid) if isinstance(column, Nullable) else (column, None)


def concat(columns: Sequence[Column]) -> Column:
    """Join columns of one type end to end."""
    if len(columns) == 1:
        return columns[0]
    if any(isinstance(column, Nullable) for column in columns):
        split = [parts(column) for column in columns]
        values = concat([v for v, _ in split])
        valid = [np.ones(len(v), np.bool_) if mask is None else mask for v, mask in split]
        assert not isinstance(values, Nullable)
        return Nullable(values, np.concatenate(valid))
    if isinstance(columns[0], Text):
        return _concat_texts(columns)  # type: ignore[arg-type]
    return np.concatenate(columns)  # type: ignore[arg-type]


def _concat_texts(columns: Sequence[Text]) -> Text:
    first = columns[0]
    if all(
        column.data is first.data and column.offsets[0] == before.offsets[-1] for before, column in pairwise(columns)
    ):
        # neighbouring slices of one batch, as a queue hands them out: the bytes already lie in a row
        return Text(first.data, np.concatenate([first.offsets, *(column.offsets[1:] for column in columns[1:])]))
    data = [column.data[column.offsets[0] : column.offsets[-1]] for column in columns]
    ends, edges = 0, [np.zeros(1, np.int32)]
    for column, piece in zip(columns, data, strict=True):
        edges.append(column.offsets[1:] + np.int32(ends - int(column.offsets[0])))
        ends += len(piece)
    return Text(np.concatenate(data), np.concatenate(edges))


def empty(kind: Type) -> Column:
    """Return a column of no rows."""
    return Text(np.zeros(0, np.uint8), np.zeros(1, np.int32)) if kind == "text" else np.zeros(0, DTYPES[kind])


def column_of(values: Any, kind: Type, *, name: str = "?") -> Column:
    """Make a column of one type from an array or from Python values, None meaning missing.

    An array goes by the rule for Python values, so that no value becomes another one; truth values may be 0 and 1 too.

    >>> column_of([1, None, 3], "int")
    Nullable([1, None, 3])
    """
    if isinstance(values, Nullable) and kind != "any":
        if isinstance(values.values, Text) == (kind == "text") and (cast := _cast(values.values, kind)) is not None:
            return values if cast is values.values else Nullable(cast, values.valid)
    elif isinstance(values, Text | Nullable):
        if kind in ("text", "any"):
            return values
    elif kind == "any":
        out = np.empty(len(values), object)
        out[:] = list(values)
        return out
    elif isinstance(values, np.ndarray) and values.dtype.kind not in "OUS":
        if kind == "text":
            raise FlowError(f"column {name!r}: expected text, got numbers ({values.dtype})")
        if kind == "time" and values.dtype.kind == "M":
            return _column_of_moments(values, name)
        if values.dtype.kind in "mM":  # of which Python makes numbers, if they are of nanoseconds
            raise FlowError(f"column {name!r}: expected {kind}, got {values.dtype}")
        if (cast := _cast(values, kind)) is not None:
            return cast
    return _column_of_objects(
        values.tolist() if isinstance(values, Text | Nullable | np.ndarray) else list(values), kind, name
    )


def _cast(values: Array | Text, kind: Type) -> Array | Text | None:
    """Return values as a column of a type stores them; None where that might change one, and each is to be looked at."""
    if isinstance(values, Text) or values.dtype == (dtype := DTYPES[kind]):
        return values
    if not np.can_cast(values.dtype, dtype, "same_kind") or (kind == "time" and values.dtype.kind == "b"):
        return None
    if values.dtype.kind == "u" and dtype.kind == "i" and len(values) and values.max() > _MOST:
        return None
    return values.astype(dtype)


def _column_of_moments(values: Array, name: str) -> Column:
    """Make a column of time from NumPy's moments of any unit; NaT is missing."""
    valid, moments = ~np.isnat(values), values.astype("M8[us]")
    coarse = np.can_cast(values.dtype, moments.dtype, "safe")
    if coarse and (moments.astype(values.dtype) != values)[valid].any():
        raise FlowError(f"column {name!r}: a moment of {values.dtype} is too far away for microseconds since 1970")
    return nullable(moments.astype(np.int64), valid)


def _column_of_objects(values: list[Any], kind: Type, name: str) -> Column:
    missing = [value is None for value in values]
    if any(missing):
        fill: Any = {"text": "", "bool": False}.get(kind, 0)
        filled = column_of([fill if value is None else value for value in values], kind, name=name)
        assert not isinstance(filled, Nullable)
        return Nullable(filled, ~np.array(missing))
    if not _PLAIN[kind].issuperset(
        map(type, values)
    ):  # mostly they are as they should be: then none is looked at twice
        values = [checked_value(value, kind, name) for value in values]
        if None in values:  # of NumPy's NaT
            return _column_of_objects(values, kind, name)
    if kind == "text":
        return Text.of(values)
    try:
        return np.array(values, DTYPES[kind])
    except OverflowError:
        bits = max(abs(value) for value in values if isinstance(value, int)).bit_length()
        raise FlowError(f"column {name!r}: a number of {bits} bits is too large for {kind}") from None


def checked_value(value: Any, kind: Type, name: str) -> Any:
    """Return a Python value as its column stores it, or say what was expected."""
    if value is None or kind == "any":
        return value
    python_type = type(value)
    if python_type in _PLAIN[kind] or (kind == "text" and isinstance(value, str)):
        return value
    if kind == "time" and isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if isinstance(value, np.datetime64) and kind == "time":
        return _column_of_moments(np.array([value]), name).tolist()[0]
    if (
        isinstance(value, np.generic) and kind != "text" and value.dtype.kind not in "mM"
    ):  # of which item() makes numbers
        return checked_value(value.item(), kind, name)
    raise FlowError(f"column {name!r}: expected {kind}, got {python_type.__name__} {value!r}")
