"""Fields: values as text and back, for files that have nothing but text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from headwater.data.column import Array, Column, Nullable, Text, column_of
from headwater.data.iso_text import read_moments
from headwater.data.schema import DTYPES, Type
from headwater.data.timestamps import is_moment, micros_of_text, moments_as_text
from headwater.io.records import json_texts, short_floats

_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_FILL = {"bool": "false", "any": "null"}


def column_of_texts(texts: Sequence[str], kind: Type) -> Column:
    """Make a column of texts; an empty one is missing, unless the column is text. Raises ValueError.

    >>> column_of_texts(["1", "", "3"], "int")
    Nullable([1, None, 3])
    """
    if kind == "text":
        return Text.of(texts)
    valid = None
    if "" in texts:
        valid = np.array([text != "" for text in texts])
        texts = [text or _FILL.get(kind, "0") for text in texts]
    values = _READERS[kind](texts)
    if kind == "any":
        return column_of(values, kind)
    array = np.array(values, DTYPES[kind])
    return array if valid is None else Nullable(array, valid)


def _read_ints(texts: Sequence[str]) -> list[int]:
    _refuse_underscores(texts)
    return list(map(int, texts))


def _read_floats(texts: Sequence[str]) -> list[float]:
    _refuse_underscores(texts)
    return list(map(float, texts))


def _refuse_underscores(texts: Sequence[str]) -> None:
    if "_" in "".join(texts):  # Python reads 1_000 as a number; nobody else writes it as one
        raise ValueError("a number has no underscores")


def _read_truths(texts: Sequence[str]) -> list[bool]:
    try:
        return [_TRUTH[text.strip().lower()] for text in texts]
    except KeyError as error:
        raise ValueError("expected true or false") from error


def _read_moments(texts: Sequence[str]) -> Array:
    column = Text.of(texts)
    micros, sure = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    read_moments(column.data, column.offsets, micros, sure)
    for row in np.flatnonzero(~sure).tolist():
        micros[row] = micros_of_text(texts[row])
    return micros


def _read_json(texts: Sequence[str]) -> list[Any]:
    values = []
    for text in texts:
        try:
            values.append(msgspec.json.decode(text))
        except msgspec.DecodeError:
            values.append(text)
    return values


_READERS: dict[Type, Callable[[Sequence[str]], list[Any] | Array]] = {
    "bool": _read_truths,
    "int": _read_ints,
    "float": _read_floats,
    "float32": _read_floats,
    "time": _read_moments,
    "any": _read_json,
}


def guess_from_texts(texts: Sequence[str]) -> Type:
    """Guess the type that all of these texts fit, empty ones aside.

    >>> guess_from_texts(["1", ""]), guess_from_texts(["1", "2.5"]), guess_from_texts(["007"])
    ('int', 'float', 'text')
    """
    values = [text for text in texts if text]
    if not values or any(_is_code(text) for text in values):
        return "text"
    if all(map(is_moment, values)):
        return "time"
    guesses: tuple[Type, ...] = ("int", "float", "bool")
    return next((kind for kind in guesses if _fits(values, kind)), "text")


def _is_code(text: str) -> bool:
    """Tell whether a text looks like a number and is none: 007 would lose its zeros."""
    return len(text) > 1 and text[0] == "0" and text.isdigit()


def _fits(texts: Sequence[str], kind: Type) -> bool:
    try:
        column_of_texts(texts, kind)
    except (ValueError, OverflowError):
        return False
    return True


def texts_of_column(column: Column, kind: Type) -> list[Any]:
    """Return what a CSV row shows of each value: text, numbers, and None where missing."""
    if kind == "time":
        return moments_as_text(column)
    values = column.tolist()
    if kind == "bool":
        return [None if value is None else "true" if value else "false" for value in values]
    if kind == "any":
        return json_texts(column)
    return short_floats(column) if kind == "float32" else values
