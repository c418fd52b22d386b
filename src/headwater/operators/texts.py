"""Functions of text: what each means, as Python on single texts, and Arrow's form for columns where it means the same."""

from __future__ import annotations

import operator as op
from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.data.column import Text

#: By the name that the function has in expressions; Python's meaning is the one that counts.
_MEANING: dict[str, Callable[..., Any]] = {
    "upper": str.upper,
    "lower": str.lower,
    "strip": str.strip,
    "length": len,
    "contains": op.contains,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "replace": str.replace,
    "substring": lambda text, start, stop: text[start:stop],
    "add": op.add,
    "least": min,
    "greatest": max,
    "eq": op.eq,
    "ne": op.ne,
    "lt": op.lt,
    "le": op.le,
    "gt": op.gt,
    "ge": op.ge,
}
#: What a column of results is, where it is not text.
_RESULT_TYPES: dict[str, type] = {"length": np.int64} | dict.fromkeys(
    ("contains", "starts_with", "ends_with", "eq", "ne", "lt", "le", "gt", "ge"), np.bool_
)
#: Arrow knows one capital letter for each small one, so `ß` has none; of ASCII it knows what Python knows.
_ASCII_ONLY = ("upper", "lower")


def text_function(name: str, constants: list[Any]) -> Callable[..., Any]:
    """Return the function of columns (`Text`) and single texts; `constants` are the arguments known beforehand.

    Where Arrow is not installed, texts are taken one by one.
    """
    meaning = _MEANING[name]
    arrow = None if name == "replace" and constants[1] == "" else _arrow(name, constants)

    def run(*args: Any) -> Any:
        columns = [arg for arg in args if isinstance(arg, Text)]
        if not columns:
            return meaning(*args)
        if arrow is None or (name in _ASCII_ONLY and not _is_ascii(columns[0])):
            rows = [arg.tolist() if isinstance(arg, Text) else [arg] * len(columns[0]) for arg in args]
            results = [meaning(*row) for row in zip(*rows, strict=True)]
            return np.array(results, _RESULT_TYPES[name]) if name in _RESULT_TYPES else Text.of(results)
        return _from_arrow(arrow(*args))

    return run


def _is_ascii(column: Text) -> bool:
    used = column.data[column.offsets[0] : column.offsets[-1]]
    return not len(used) or bool(used.max() < 128)


def _arrow(name: str, constants: list[Any]) -> Callable[..., Any] | None:
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
    except ImportError:
        return None

    functions: dict[str, Callable[..., Any]] = {
        "upper": pc.utf8_upper,
        "lower": pc.utf8_lower,
        "strip": pc.utf8_trim_whitespace,
        "length": pc.utf8_length,
        "contains": lambda a, b: pc.match_substring(a, constants[1]),
        "starts_with": lambda a, b: pc.starts_with(a, constants[1]),
        "ends_with": lambda a, b: pc.ends_with(a, constants[1]),
        "replace": lambda a, b, c: pc.replace_substring(a, constants[1], constants[2]),
        "substring": lambda a, b, c: pc.utf8_slice_codeunits(a, constants[1], constants[2]),
        "add": lambda a, b: pc.binary_join_element_wise(a, b, ""),
        "least": pc.min_element_wise,
        "greatest": pc.max_element_wise,
        "eq": pc.equal,
        "ne": pc.not_equal,
        "lt": pc.less,
        "le": pc.less_equal,
        "gt": pc.greater,
        "ge": pc.greater_equal,
    }
    function = functions[name]
    return lambda *args: function(*(arg.to_arrow() if isinstance(arg, Text) else pa.scalar(arg) for arg in args))


def _from_arrow(result: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_string(result.type):
        return Text.from_arrow(result)
    values = result.to_numpy(zero_copy_only=False)
    return values.astype(np.int64) if values.dtype == np.int32 else values
