"""What a kernel is called with, as types: a kernel is compiled anew for each such signature."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

#: one name for each argument: `<f4 1C` (an array of one dimension, in order), `int64`, or a tuple of names, which begins
#: with the name of its class if it has one
Signature = tuple[Any, ...]

_NUMBERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64)
_NAMES: dict[type, str] = {bool: "bool", int: "int64", float: "float64", type(None): "none", np.bool_: "bool"} | {
    kind: np.dtype(kind).name for kind in _NUMBERS
}

#: what tells the signature of an argument, by its type; quick, since every call of a kernel looks here
LOOKS: dict[type, Callable[[Any], Any]] = {np.ndarray: attrgetter("dtype", "ndim", "flags.num")} | dict.fromkeys(
    _NAMES, type
)
LOOKS[tuple] = lambda values: tuple([LOOKS[type(each)](each) for each in values])


def learn(args: tuple[Any, ...]) -> None:
    """Have `LOOKS` know the named tuples among some arguments, and in them."""
    for each in args:
        if isinstance(each, tuple):
            learn(each)
            if type(each) not in LOOKS and hasattr(each, "_fields"):
                LOOKS[type(each)] = _look_of_named_tuple


def _look_of_named_tuple(values: Any) -> Any:
    return type(values), *[LOOKS[type(each)](each) for each in values]


def signature_of(args: tuple[Any, ...]) -> Signature | None:
    """Return the types of some arguments; None if one of them is of a kind that only Numba itself knows."""
    names = tuple(map(_name, args))
    return None if None in names else names


def hashable(names: list[Any]) -> Signature:
    """Return a signature that came by JSON."""
    return tuple(each if isinstance(each, str) else hashable(each) for each in names)


def _name(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, tuple):
        names = signature_of(tuple(value))
        return names if names is None or type(value) is tuple else _named_tuple(type(value), names)
    return _NAMES.get(type(value))


def _named_tuple(kind: Any, names: Signature) -> Signature | None:
    """Return the name of a named tuple: its class, the names of its fields, and their types."""
    if "." in kind.__qualname__ or not hasattr(kind, "_fields"):
        return None
    return f"={kind.__module__}:{kind.__qualname__} {' '.join(kind._fields)}", *names


def _array(array: np.ndarray[Any, Any]) -> str | None:
    if array.dtype.kind not in "biuf" or type(array) is not np.ndarray:
        return None
    flags = array.flags
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    return f"{array.dtype.str} {array.ndim}{layout}{'' if flags.writeable else 'r'}{'' if flags.aligned else 'u'}"
