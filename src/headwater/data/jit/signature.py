"""What a kernel is called with, as types: a kernel is compiled anew for each such signature."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

#: one name for each argument: `<f4 1C` (an array of one dimension, in order), `int64`, or a tuple of names
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


def signature_of(args: tuple[Any, ...]) -> Signature | None:
    """Return the types of some arguments; None if one of them is of a kind that only Numba itself knows."""
    names = tuple(map(_name, args))
    return None if None in names else names


def _name(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, tuple) and type(value) is tuple:
        return signature_of(value)
    return _NAMES.get(type(value))


def _array(array: np.ndarray[Any, Any]) -> str | None:
    if array.dtype.kind not in "biuf" or type(array) is not np.ndarray:
        return None
    flags = array.flags
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    return f"{array.dtype.str} {array.ndim}{layout}{'' if flags.writeable else 'r'}{'' if flags.aligned else 'u'}"
