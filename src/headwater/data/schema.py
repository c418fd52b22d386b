"""Schemas: the names and types of a stream's columns."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

import numpy as np

from headwater.errors import FlowError, listed, suggestion

Type = Literal["bool", "int", "float", "float32", "text", "time", "any"]
TYPES: tuple[str, ...] = get_args(Type)
NUMERIC = ("int", "float", "float32")

#: How a type lies in memory; text has a layout of its own, `any` holds Python objects.
DTYPES: dict[str, np.dtype[np.generic]] = {
    "bool": np.dtype(np.bool_),
    "int": np.dtype(np.int64),
    "float": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "time": np.dtype(np.int64),
    "any": np.dtype(object),
}
_PYTHON: dict[object, Type] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    datetime: "time",
    object: "any",
    np.float32: "float32",
    np.float64: "float",
    np.int64: "int",
    np.bool_: "bool",
}
Fields = Mapping[str, object]


@dataclass(frozen=True)
class Schema(Mapping[str, Type]):
    """The columns of a stream, in order; reads like a mapping from name to type.

    Types are `bool`, `int`, `float`, `float32`, `text`, `time` (microseconds since 1970, UTC) and `any` (Python objects,
    slow); Python's own `int`, `float`, `str`, `bool` and `datetime` are understood too.

    >>> Schema.of({"id": str, "height": float})["height"]
    'float'
    """

    fields: tuple[tuple[str, Type], ...]

    @classmethod
    def of(cls, fields: Fields | Schema) -> Schema:
        """Check `fields` and make a schema of them."""
        if isinstance(fields, Schema):
            return fields
        _check_mapping(fields)
        return cls(
            tuple((_checked_name(name), checked_type(f"column {name!r}", kind)) for name, kind in fields.items())
        )

    def __getitem__(self, name: str) -> Type:
        for field, kind in self.fields:
            if field == name:
                return kind
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return ", ".join(f"{name}: {kind}" for name, kind in self.fields)

    def type_of(self, name: str, *, what: str) -> Type:
        """Return the type of a column, or say which columns there are."""
        if not isinstance(name, str):
            raise FlowError(f"{what}: expected the name of a column, a text; got {type(name).__name__} {name}")
        if name not in self:
            raise FlowError(f"{what}: there is no column {name!r}; columns are {listed(self)}{suggestion(name, self)}")
        return self[name]

    def with_fields(self, fields: Fields) -> Schema:
        """Return this schema with columns replaced in place or added at the end."""
        return Schema.of({**dict(self.fields), **fields})

    def only(self, names: tuple[str, ...]) -> Schema:
        """Return the schema of some of the columns, in the order given."""
        return Schema(tuple((name, self[name]) for name in names))


def _check_mapping(fields: object) -> None:
    if not isinstance(fields, Mapping):
        actual = f"{type(fields).__name__} {fields!r}"
        raise FlowError(f"columns are given as names and types, such as {{'id': str, 'x': float}}; got {actual}")


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise FlowError(f"a column name is text that is not empty; got {name!r}")
    return name


def type_name(kind: object) -> Type | None:
    """Return a type by its name or by Python's own type for it; None when there is none."""
    name = kind if isinstance(kind, str) else _PYTHON.get(kind) if isinstance(kind, Hashable) else None
    return name if name in TYPES else None  # type: ignore[return-value]


def checked_type(what: str, kind: object) -> Type:
    """Return a type by its name or by Python's own type for it, or say that `what` has none."""
    column_type = type_name(kind)
    if column_type is not None:
        return column_type
    label = kind if isinstance(kind, str) else getattr(kind, "__name__", kind)
    raise FlowError(f"{what} has unknown type {label!r}; types are {listed(TYPES)}{suggestion(str(label), TYPES)}")
