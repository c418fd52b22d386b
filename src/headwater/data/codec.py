"""Values as bytes and back, exactly: MessagePack, with extensions for what it lacks. No pickle.

A value comes back equal and of the same type. Known are None, bool, int of any size, float, complex, str, bytes, bytearray,
Decimal, datetime, date, time, timedelta; list, tuple, deque, set, frozenset, dict, OrderedDict and Counter of such; NumPy's
arrays and scalars; columns and batches. Anything else, subclasses included, is refused when it is written: its code could
not be stored with it.
"""

from __future__ import annotations

import reprlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from headwater.data.batch import Batch
from headwater.data.column import Nullable, Text

_PLAIN = {float, bool, bytes, type(None)}
_INT64 = range(-(2**63), 2**63)
_NUMBERS = "biufcmMSU"  #: kinds of arrays that are nothing but their bytes

_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.decode
#: of an array: its type, its shape, and what is in it, found without a copy
_unpack_array = msgspec.msgpack.Decoder(tuple[str, list[int], msgspec.Raw]).decode
_unpack_bytes = msgspec.msgpack.Decoder(memoryview).decode


def encode(value: Any) -> bytes:
    """Return a value as bytes; TypeError says what has no form."""
    try:
        return _pack(_plain(value))
    except RecursionError:
        raise TypeError("a value is nested too deeply to be stored, or holds itself") from None


def encode_all(values: Sequence[Any]) -> bytes:
    """Return a list of values as bytes: as `encode`, faster when all are numbers or text."""
    if (_PLAIN | {str}).issuperset(map(type, values)):
        try:
            return _pack(values)
        except UnicodeEncodeError:  # half a pair of surrogates, which only the long way round can tell
            pass
    return encode(list(values))


def decode(data: bytes | memoryview) -> Any:
    """Return what `encode` was given; ValueError when these are no bytes of ours.

    >>> decode(encode([(1, "a"), {2: None}, {3}, 2**70, {"": "text"}]))
    [(1, 'a'), {2: None}, {3}, 1180591620717411303424, {'': 'text'}]
    """
    try:
        return msgspec.msgpack.decode(data, ext_hook=_extension)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is int and value in _INT64):
        return value
    if kind is str:
        return value if _is_unicode(value) else Ext(_CODES[str], value.encode("utf-8", "surrogatepass"))
    if kind is list:
        return value if _all_plain(value) else [_plain(item) for item in value]
    if kind is dict and all(type(key) is str and _is_unicode(key) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    if kind not in _FORMS and isinstance(value, np.generic):
        kind = np.generic
    if kind not in _FORMS:
        raise TypeError(
            f"a value of type {kind.__name__} cannot be stored outside the process: {reprlib.repr(value)}; "
            "make it numbers, text, lists, tuples, sets or dicts of such"
        )
    return Ext(_CODES[kind], _pack(_plain(_FORMS[kind][0](value))))


def _all_plain(values: list[Any]) -> bool:
    """Say whether all are known at a glance to be stored as they are: most lists are of numbers, and long."""
    kinds = set(map(type, values))
    return kinds <= _PLAIN or (kinds == {int} and min(values) >= -(2**63) and max(values) < 2**63)


def _extension(code: int, data: memoryview) -> Any:
    if code == _CODES[str]:
        return bytes(data).decode("utf-8", "surrogatepass")
    if code not in _BACK:
        raise ValueError(f"a stored value is of an unknown kind {code}; was it written by a newer version?")
    try:
        form = _array_parts(data) if code == _CODES[np.ndarray] else _unpack(data, ext_hook=_extension)
    except msgspec.ValidationError as error:
        raise ValueError(f"a stored value of kind {code} cannot be read: {error}") from None
    try:
        return _BACK[code](form)
    except Exception as error:  # bytes that only look like ours
        raise ValueError(f"a stored value of kind {code} cannot be read: {error}") from None


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- forms ------------------------------------------------------------------------------------------------------------


def _moment_form(moment: datetime | time) -> list[Any]:
    return [moment.replace(tzinfo=None, fold=0).isoformat(), moment.fold, _zone_form(moment.tzinfo)]


def _zone_form(zone: tzinfo | None) -> Any:
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        return zone.key
    if zone is None or type(zone) is timezone:
        return None if zone is None else zone.utcoffset(None)
    raise TypeError(
        f"a zone of type {type(zone).__name__} cannot be stored outside the process: {zone!r}; use zoneinfo"
    )


def _zone(form: Any) -> tzinfo | None:
    if isinstance(form, str):
        return ZoneInfo(form)
    return None if form is None else timezone(form)


def _array_form(value: Any) -> list[Any]:
    if value.dtype == object:
        return ["O", list(value.shape), value.reshape(-1).tolist()]
    if value.dtype.kind not in _NUMBERS or (value.dtype.itemsize > 16 and value.dtype.kind in "fc"):
        raise TypeError(f"an array of {value.dtype} cannot be stored outside the process")
    return [value.dtype.str, list(value.shape), value.tobytes()]


def _array_parts(data: memoryview) -> tuple[str, list[int], Any]:
    name, shape, content = _unpack_array(data)
    return name, shape, _unpack(content, ext_hook=_extension) if name == "O" else _unpack_bytes(content)


def _array(form: Sequence[Any]) -> Any:
    name, shape, data = form
    if name == "O":
        return np.fromiter(data, object, len(data)).reshape(shape)
    dtype = np.dtype(name)
    if dtype.kind not in _NUMBERS:
        raise ValueError(f"a stored array is of {dtype}, which none of ours is")
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _text_form(text: Text) -> list[Any]:
    compact = text[np.arange(len(text))]
    return [compact.data.tobytes(), compact.offsets.tobytes()]


def _text(form: list[Any]) -> Text:
    data, offsets = (np.frombuffer(bytearray(part), np.uint8) for part in form)
    return Text(data, offsets.view(np.int32))


def _pairs(value: Any) -> list[Any]:
    return [[key, item] for key, item in value.items()]


#: Of each type that MessagePack lacks: what it is stored as, and the way back. A type's code is its place here: only ever
#: add at the end.
_FORMS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    str: (str, str),  # with half a pair of surrogates
    tuple: (list, tuple),
    set: (list, set),
    frozenset: (list, frozenset),
    dict: (_pairs, dict),  # with other keys than text
    int: (
        lambda value: value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True),  # of more than 64 bits
        lambda form: int.from_bytes(form, "big", signed=True),
    ),
    datetime: (
        _moment_form,
        lambda form: datetime.fromisoformat(form[0]).replace(fold=form[1], tzinfo=_zone(form[2])),
    ),
    np.ndarray: (_array_form, _array),
    np.generic: (lambda value: _array_form(np.asarray(value)), lambda form: _array(form)[()]),
    np.str_: (str, np.str_),
    np.bytes_: (bytes, np.bytes_),
    date: (date.isoformat, date.fromisoformat),
    time: (_moment_form, lambda form: time.fromisoformat(form[0]).replace(fold=form[1], tzinfo=_zone(form[2]))),
    timedelta: (lambda value: [value.days, value.seconds, value.microseconds], lambda form: timedelta(*form)),
    Decimal: (str, Decimal),
    complex: (lambda value: [value.real, value.imag], lambda form: complex(*form)),
    bytearray: (bytes, bytearray),
    deque: (lambda value: [list(value), value.maxlen], lambda form: deque(*form)),
    OrderedDict: (_pairs, OrderedDict),
    Counter: (_pairs, lambda form: Counter(dict(form))),
    Text: (_text_form, _text),
    Nullable: (lambda value: [value.values, value.valid], lambda form: Nullable(*form)),
    Batch: (
        lambda value: [_pairs(value.columns), value.length, value.stamps, value.watermark],
        lambda form: Batch(dict(form[0]), *form[1:]),
    ),
}
_CODES = {kind: code for code, kind in enumerate(_FORMS)}
_BACK = {_CODES[kind]: back for kind, (_, back) in _FORMS.items()}
