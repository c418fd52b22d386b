"""Column expressions: `col.height < 150` is data that can be printed, checked, run on arrays or given to Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headwater.data.schema import NUMERIC, TYPES, Schema, Type, type_name
from headwater.errors import FlowError, suggestion

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&",
    "or": "|",
}
_ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "mod", "pow", "quotient", "remainder")
_COMPARISON = ("eq", "ne", "lt", "le", "gt", "ge")


class Expr(ABC):
    """An expression over the columns of a stream.

    >>> str((col.height < 150) & ~col.name.is_null())
    '((col.height < 150) & ~col.name.is_null())'
    """

    __slots__ = ()
    # Expressions compare by identity: `==` builds an expression instead.
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Expr:
        return Call("add", (self, expr(other)))

    def __radd__(self, other: Any) -> Expr:
        return Call("add", (expr(other), self))

    def __sub__(self, other: Any) -> Expr:
        return Call("sub", (self, expr(other)))

    def __rsub__(self, other: Any) -> Expr:
        return Call("sub", (expr(other), self))

    def __mul__(self, other: Any) -> Expr:
        return Call("mul", (self, expr(other)))

    def __rmul__(self, other: Any) -> Expr:
        return Call("mul", (expr(other), self))

    def __truediv__(self, other: Any) -> Expr:
        return Call("div", (self, expr(other)))

    def __rtruediv__(self, other: Any) -> Expr:
        return Call("div", (expr(other), self))

    def __floordiv__(self, other: Any) -> Expr:
        return Call("floordiv", (self, expr(other)))

    def __mod__(self, other: Any) -> Expr:
        return Call("mod", (self, expr(other)))

    def __pow__(self, other: Any) -> Expr:
        return Call("pow", (self, expr(other)))

    def quotient(self, other: Any) -> Expr:
        """Divide and drop what is behind the point, where `//` rounds down: -7 by 2 is -3."""
        return Call("quotient", (self, expr(other)))

    def remainder(self, other: Any) -> Expr:
        """Return what `quotient` leaves, with the sign of this side, where that of `%` is the other's."""
        return Call("remainder", (self, expr(other)))

    def __neg__(self) -> Expr:
        return Call("neg", (self,))

    def __invert__(self) -> Expr:
        return Call("not", (self,))

    def __and__(self, other: Any) -> Expr:
        return Call("and", (self, expr(other)))

    def __or__(self, other: Any) -> Expr:
        return Call("or", (self, expr(other)))

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return Call("eq", (self, expr(other)))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return Call("ne", (self, expr(other)))

    def __lt__(self, other: Any) -> Expr:
        return Call("lt", (self, expr(other)))

    def __le__(self, other: Any) -> Expr:
        return Call("le", (self, expr(other)))

    def __gt__(self, other: Any) -> Expr:
        return Call("gt", (self, expr(other)))

    def __ge__(self, other: Any) -> Expr:
        return Call("ge", (self, expr(other)))

    def __bool__(self) -> bool:
        raise FlowError(
            f"expression {self} has no truth value of its own; write & for 'and', | for 'or', ~ for 'not', "
            "with each comparison in parentheses"
        )

    def abs(self) -> Expr:
        """Return the absolute value."""
        return Call("abs", (self,))

    def sqrt(self) -> Expr:
        """Return the square root; NaN below zero."""
        return Call("sqrt", (self,))

    def log(self) -> Expr:
        """Return the natural logarithm."""
        return Call("log", (self,))

    def exp(self) -> Expr:
        """Return e to this power."""
        return Call("exp", (self,))

    def floor(self) -> Expr:
        """Round down."""
        return Call("floor", (self,))

    def ceil(self) -> Expr:
        """Round up."""
        return Call("ceil", (self,))

    def round(self, digits: int = 0) -> Expr:
        """Round to `digits` decimal places, half to even."""
        return Call("round", (self, Literal(digits)))

    def is_null(self) -> Expr:
        """Say where a value is missing."""
        return Call("is_null", (self,))

    def is_nan(self) -> Expr:
        """Say where a number is not a number."""
        return Call("is_nan", (self,))

    def fill_null(self, value: Any) -> Expr:
        """Put `value` where one is missing."""
        return Call("fill_null", (self, expr(value)))

    def cast(self, kind: Type | type) -> Expr:
        """Convert to another type, by its name or as `int`, `float`, `bool`, `str` or `datetime`.

        What has no counterpart becomes missing: text that is no number, no moment in ISO 8601; NaN as a whole number.
        Numbers lose what is behind the point; one that does not fit 64 bits is an error of its record. Text is written so
        that it can be read back: the shortest digits that mean the same float, moments in ISO 8601.
        """
        name = type_name(kind)
        if name is None or name == "any":
            label = getattr(kind, "__name__", kind)
            raise FlowError(
                f"cannot cast to {label!r}; types are {', '.join(TYPES[:-1])}{suggestion(str(label), TYPES)}"
            )
        return Call("cast", (self, Literal(name)))

    def is_in(self, values: Iterable[Any]) -> Expr:
        """Say where the value is one of these."""
        return Call("is_in", (self, *(Literal(value) for value in values)))

    def upper(self) -> Expr:
        """Return the text in capitals."""
        return Call("upper", (self,))

    def lower(self) -> Expr:
        """Return the text in small letters."""
        return Call("lower", (self,))

    def strip(self) -> Expr:
        """Return the text without white space at its ends."""
        return Call("strip", (self,))

    def length(self) -> Expr:
        """Return the number of characters."""
        return Call("length", (self,))

    def contains(self, part: str) -> Expr:
        """Say where the text contains `part`."""
        return Call("contains", (self, Literal(part)))

    def starts_with(self, part: str) -> Expr:
        """Say where the text starts with `part`."""
        return Call("starts_with", (self, Literal(part)))

    def ends_with(self, part: str) -> Expr:
        """Say where the text ends with `part`."""
        return Call("ends_with", (self, Literal(part)))

    def replace(self, old: str, new: str) -> Expr:
        """Replace every `old` by `new`."""
        return Call("replace", (self, Literal(old), Literal(new)))

    def substring(self, start: int, stop: int) -> Expr:
        """Return the characters from `start` up to `stop`."""
        return Call("substring", (self, Literal(start), Literal(stop)))

    @abstractmethod
    def columns(self) -> frozenset[str]:
        """Return the names of the columns that this expression reads."""

    @abstractmethod
    def type_in(self, schema: Schema) -> Type:
        """Return the type of the result over a stream of this schema, or say what does not fit."""

    @abstractmethod
    def to_json(self) -> Any:
        """Describe the expression as plain data."""


@dataclass(frozen=True, eq=False, slots=True)
class Column(Expr):
    """A column by name."""

    name: str

    def __str__(self) -> str:
        return f"col.{self.name}" if self.name.isidentifier() else f"col[{self.name!r}]"

    def columns(self) -> frozenset[str]:
        """Return this column's name."""
        return frozenset((self.name,))

    def type_in(self, schema: Schema) -> Type:
        """Return the column's type."""
        return schema.type_of(self.name, what=str(self))

    def to_json(self) -> Any:
        """Describe the column."""
        return {"col": self.name}


@dataclass(frozen=True, eq=False, slots=True)
class Literal(Expr):
    """A constant."""

    value: Any

    def __str__(self) -> str:
        return repr(self.value)

    def columns(self) -> frozenset[str]:
        """Return no names: a constant reads nothing."""
        return frozenset()

    def type_in(self, schema: Schema) -> Type:
        """Return the type of the constant."""
        if isinstance(self.value, int) and not -(2**63) <= self.value < 2**63:
            raise FlowError(f"a whole number has 64 bits; got one of {self.value.bit_length()}; write it as a float")
        for kind, name in ((bool, "bool"), (int, "int"), (float, "float"), (str, "text")):
            if isinstance(self.value, kind):
                return name  # type: ignore[return-value]
        raise FlowError(f"a constant is a number, text or true/false; got {type(self.value).__name__} {self.value!r}")

    def to_json(self) -> Any:
        """Describe the constant."""
        return {"value": self.value}


@dataclass(frozen=True, eq=False, slots=True)
class Call(Expr):
    """A function of other expressions."""

    name: str
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        if self.name in _INFIX:
            return f"({self.args[0]} {_INFIX[self.name]} {self.args[1]})"
        if self.name in ("neg", "not"):
            return f"{'-' if self.name == 'neg' else '~'}{self.args[0]}"
        if self.name in ("when", "least", "greatest", "coalesce"):
            return f"{self.name}({', '.join(map(str, self.args))})"
        rest = ", ".join(map(str, self.args[1:]))
        return f"{self.args[0]}.{self.name}({'[' + rest + ']' if self.name == 'is_in' else rest})"

    def columns(self) -> frozenset[str]:
        """Return the names that any argument reads."""
        return frozenset().union(*(arg.columns() for arg in self.args))

    def type_in(self, schema: Schema) -> Type:
        """Return the result's type by the rules of this function."""
        return _result_type(self, [arg.type_in(schema) for arg in self.args])

    def to_json(self) -> Any:
        """Describe the call and its arguments."""
        return {"call": self.name, "args": [arg.to_json() for arg in self.args]}


def _result_type(call: Call, kinds: list[Type]) -> Type:
    name = call.name
    if name == "cast":
        return call.args[1].value  # type: ignore[attr-defined,no-any-return]
    if name in _ARITHMETIC or name in ("least", "greatest"):
        return _arithmetic_type(call, kinds)
    if name in _COMPARISON or name == "is_in":
        for kind in kinds[1:]:
            _common_type(call, [kinds[0], kind])
        return "bool"
    if name in ("and", "or", "not"):
        _expect(call, kinds, ("bool",))
        return "bool"
    if name in ("neg", "abs", "floor", "ceil"):
        _expect(call, kinds, NUMERIC)
        return kinds[0]
    if name in ("sqrt", "log", "exp", "round", "is_nan"):
        _expect(call, kinds[:1], NUMERIC)
        return "bool" if name == "is_nan" else kinds[0] if name == "round" or kinds[0] == "float32" else "float"
    if name == "is_null":
        return "bool"
    if name in ("fill_null", "coalesce"):
        return _common_type(call, kinds)
    if name == "when":
        _expect(call, kinds[:1], ("bool",))
        return _common_type(call, kinds[1:])
    _expect(call, kinds[:1], ("text",))
    if name == "length":
        return "int"
    return "bool" if name in ("contains", "starts_with", "ends_with") else "text"


def _arithmetic_type(call: Call, kinds: list[Type]) -> Type:
    if call.name == "add" and kinds == ["text", "text"]:
        return "text"
    if "time" in kinds and call.name in ("add", "sub") and all(kind in ("time", "int") for kind in kinds):
        return "int" if kinds == ["time", "time"] and call.name == "sub" else "time"
    _expect(call, kinds, NUMERIC)
    common = _common_type(call, kinds)
    return "float" if call.name == "div" and common == "int" else common


def _expect(call: Call, kinds: list[Type], expected: tuple[str, ...]) -> None:
    for arg, kind in zip(call.args, kinds, strict=False):
        if kind not in expected:
            hint = f"; did you mean {arg}.cast('float')?" if kind == "text" and expected == NUMERIC else ""
            raise FlowError(f"{call}: {arg} is {kind}, expected {' or '.join(expected)}{hint}")


def _common_type(call: Call, kinds: list[Type]) -> Type:
    distinct = set(kinds)
    if len(distinct) == 1:
        return kinds[0]
    if distinct <= {"int", "time"}:
        return "time"
    if distinct <= set(NUMERIC):
        # a constant does not widen a float32 column
        columns = {k for a, k in zip(call.args, kinds, strict=False) if not isinstance(a, Literal)} or distinct
        return "float" if "float" in columns or "float32" not in distinct else "float32"
    raise FlowError(f"{call}: {' and '.join(kinds)} do not go together")


def expr(value: Any) -> Expr:
    """Return an expression as it is, and anything else as a constant."""
    return value if isinstance(value, Expr) else Literal(value)


def from_json(data: Any) -> Expr:
    """Return the expression that `to_json` described.

    >>> str(from_json((col.x + 1).to_json()))
    '(col.x + 1)'
    """
    match data:
        case {"col": str(name)}:
            return Column(name)
        case {"value": value}:
            return Literal(value)
        case {"call": str(name), "args": list(args)}:
            return Call(name, tuple(from_json(arg) for arg in args))
    raise FlowError(f"expected an expression as plain data, got {data!r}")


def when(condition: Expr, then: Any, otherwise: Any) -> Expr:
    """Choose by condition, record by record; where the condition is missing, `otherwise`."""
    return Call("when", (condition, expr(then), expr(otherwise)))


def least(*values: Any) -> Expr:
    """Return the smallest of several."""
    return Call("least", tuple(map(expr, values)))


def greatest(*values: Any) -> Expr:
    """Return the largest of several."""
    return Call("greatest", tuple(map(expr, values)))


def coalesce(*values: Any) -> Expr:
    """Return the first that is not missing."""
    return Call("coalesce", tuple(map(expr, values)))


class _Columns:
    """`col.name` or `col["any name"]` makes a column expression."""

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return Column(name)

    def __getitem__(self, name: str) -> Column:
        return Column(name)


col = _Columns()
