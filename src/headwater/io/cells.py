"""Python objects as MessagePack: plain values come back exactly as they were, and nothing else is let in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from headwater.errors import InputError

_PLAIN = {str, float, bool, bytes, type(None)}
_INT64 = range(-(2**63), 2**63)

#: Types that MessagePack lacks: the code each has, the plain value it is stored as, and the way back.
_EXTENSIONS: dict[type, tuple[int, Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (1, list, tuple),
    set: (2, list, set),
    frozenset: (3, list, frozenset),
    dict: (4, lambda value: [[key, item] for key, item in value.items()], dict),
    int: (5, str, int),
    datetime: (6, lambda value: value.isoformat(), datetime.fromisoformat),
    np.ndarray: (7, lambda value: _array_form(value), lambda form: _array(*form)),
    np.generic: (8, lambda value: _array_form(value), lambda form: _array(*form)[()]),
}
_BACK = {code: back for code, _, back in _EXTENSIONS.values()}

_pack = msgspec.msgpack.Encoder().encode


def pack_cells(values: Sequence[Any]) -> bytes:
    """Encode Python values; a type that has no exact form raises InputError."""
    if _PLAIN.issuperset(map(type, values)):
        return _pack(values)
    return _pack([_cell(value) for value in values])


def unpack_cells(data: bytes | memoryview) -> list[Any]:
    """Decode what `pack_cells` encoded.

    >>> unpack_cells(pack_cells([(1, "a"), {2: None}, 2**70]))
    [(1, 'a'), {2: None}, 1180591620717411303424]
    """
    return msgspec.msgpack.decode(data, type=list[Any], ext_hook=_unpack_extension)


def _cell(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is int and value in _INT64):
        return value
    if kind is list:
        return [_cell(item) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _cell(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        kind = np.generic
    if kind not in _EXTENSIONS:
        raise _no_form(value)
    code, plain, _ = _EXTENSIONS[kind]
    return Ext(code, _pack(_cell(plain(value))))


def _unpack_extension(code: int, data: memoryview) -> Any:
    if code not in _BACK:
        raise InputError(f"stored values have an unknown kind {code}; were they written by a newer version?")
    return _BACK[code](msgspec.msgpack.decode(data, ext_hook=_unpack_extension))


def _array_form(value: Any) -> list[Any]:
    if value.dtype.kind not in "biufcSU":
        raise _no_form(value)
    return [value.dtype.str, list(value.shape), value.tobytes()]


def _array(dtype: str, shape: list[int], data: bytes) -> Any:
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()


def _no_form(value: Any) -> InputError:
    return InputError(
        f"a value of type {type(value).__name__} cannot be stored outside the process: {value!r}; "
        "make it numbers, text, lists or dicts, or put its parts into columns of their own"
    )
