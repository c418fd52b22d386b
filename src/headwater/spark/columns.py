"""Column expressions as Spark Columns, wherever Spark means the same by them.

It does not everywhere: Spark's NaN equals itself and is greater than any number, dividing by zero gives null, rounding and
capital letters follow Java; a whole number that does not fit 64 bits wraps around or ends the query, where here its record
is set apart. What can be said otherwise with the same meaning is; what cannot is `NotNativeError`, with the reason, and
runs in Python. With `meaning="spark"` what Spark makes of it is taken instead, as far as it has a function for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.data.schema import Schema, Type
from headwater.flow.expr import Call, Expr, Literal
from headwater.flow.expr import Column as Named
from headwater.spark.options import Meaning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: How the types of a schema are called in Spark; moments are microseconds, as in a batch.
SPARK_TYPES: dict[Type, str] = {
    "int": "long",
    "time": "long",
    "float": "double",
    "float32": "float",
    "bool": "boolean",
    "text": "string",
}
_TYPES: dict[str, Type] = {
    "bigint": "int",
    "int": "int",
    "double": "float",
    "float": "float32",
    "boolean": "bool",
    "string": "text",
}
_WHOLE = ("int", "time")
_FLOATS = ("float", "float32")
_ELSEWHERE = {
    "pow": "powers differ in the last digit",
    "exp": "powers differ in the last digit",
    "log": "logarithms differ in the last digit, and Spark's of 0 is null",
    "round": "Spark rounds decimals by other rules",
    "upper": "Java knows other capital letters",
    "lower": "Java knows other small letters",
    "strip": "Spark strips spaces alone",
}
#: what Spark calls these where its own meaning is asked for
_SPARKS = {"pow": "pow", "exp": "exp", "log": "ln", "upper": "upper", "lower": "lower", "strip": "trim"}


class NotNativeError(Exception):
    """Says why an expression, or a step, has to run in Python."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Makes Columns of expressions over a table of some schema."""

    schema: Schema
    meaning: Meaning = "headwater"
    #: columns of time that are timestamps in Spark; others are microseconds
    timestamps: frozenset[str] = frozenset()
    #: columns whose type in Spark is another than here, by name; nothing can be computed of them
    opaque: Mapping[str, str] = field(default_factory=dict)

    def of(self, expr: Expr) -> Column:
        """Return the Column that means the same; raises NotNativeError when there is none."""
        return self._with_spark().result(expr)

    def where(self, condition: Expr) -> list[Column]:
        """Return Columns that all hold for exactly those records for which a condition does, as sources can be told them."""
        return self._with_spark().conditions(condition)

    def why_not(self, expr: Expr) -> str | None:
        """Return why an expression has to run in Python, None when it need not; asks no Spark, and needs none.

        >>> from headwater import col
        >>> Columns(Schema.of({"x": float})).why_not(col.x ** 2)
        '(col.x ** 2): powers differ in the last digit'
        """
        try:
            _Translation(self, _Nothing()).result(expr)
        except NotNativeError as reason:
            return str(reason)
        return None

    def _with_spark(self) -> _Translation:
        from pyspark.sql import functions

        return _Translation(self, functions)


def native(expr: Expr, schema: Schema) -> Column:
    """Return the Column that means the same over a table of this schema; raises NotNativeError when there is none."""
    return Columns(schema).of(expr)


def schema_of(table: DataFrame) -> Schema:
    """Return the schema of those columns of a table that expressions can read."""
    return Schema.of({name: _TYPES[kind] for name, kind in table.dtypes if kind in _TYPES})


class _Nothing:
    """Stands in for Spark's functions and Columns where nobody wants a Column: whatever is asked of it, it is the answer."""

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __call__(self, *args: object) -> _Nothing:
        return self


def _itself(nothing: _Nothing, *others: object) -> _Nothing:
    return nothing


for _name in ["add", "sub", "mul", "truediv", "mod", "neg", "invert", "and", "or", "eq", "ne", "lt", "le", "gt", "ge"]:
    setattr(_Nothing, f"__{_name}__", _itself)


class _Translation:
    """Puts expressions into Spark's words, `F` being its functions."""

    def __init__(self, columns: Columns, functions: Any) -> None:
        self._columns, self._schema, self._exact = columns, columns.schema, columns.meaning == "headwater"
        self.F = functions

    def result(self, expr: Expr) -> Any:
        """Return the Column of an expression, in the type that it has here."""
        return _cast(self._column(expr), expr.type_in(self._schema))

    def conditions(self, expr: Expr) -> list[Any]:
        """Take a condition apart where it says `and`, and at comparisons, of which sources understand the plain ones."""
        match expr:
            case Call("and", (a, b)):
                return [*self.conditions(a), *self.conditions(b)]
            case Call("eq" | "lt" | "le" | "gt" | "ge" as name):
                sides, may_be_nan = self._sides(expr)
                greater = _greater(name)
                condition = [_plain(name, *sides)]
                return [*condition, ~self.F.isnan(sides[greater])] if self._exact and may_be_nan[greater] else condition
        return [self._column(expr)]

    def _refuse(self, why: str) -> None:
        """Raise, unless whatever Spark means is meant."""
        if self._exact:
            raise NotNativeError(why)

    def _column(self, expr: Expr) -> Any:
        for name in sorted(expr.columns() & self._columns.opaque.keys()):
            raise NotNativeError(f"{expr}: column {name!r} is {self._columns.opaque[name]} in Spark")
        kind = expr.type_in(self._schema)
        if kind not in SPARK_TYPES:
            raise NotNativeError(f"{expr}: Spark has no type for {kind!r}")
        match expr:
            case Named(name):
                column = self._by_name(name)
                # a whole number of Spark's may have fewer bits; a cast to what it is costs nothing
                return self.F.unix_micros(column) if name in self._columns.timestamps else _cast(column, kind)
            case Literal(value):
                return _cast(self.F.lit(value), kind)
            case Call():
                return self._call(expr)
        raise NotNativeError(f"{expr} is no expression")

    def _by_name(self, name: str) -> Any:
        return self.F.col("`" + name.replace("`", "``") + "`")

    def _call(self, call: Call) -> Any:
        name = call.name
        if name in _ELSEWHERE:
            return self._elsewhere(call)
        kinds = [arg.type_in(self._schema) for arg in call.args]
        if name == "cast":
            return self._converted(call, kinds[0], call.type_in(self._schema))
        if name in ("fill_null", "coalesce", "when"):
            return self._choice(call, call.type_in(self._schema))
        if name in ("length", "contains", "starts_with", "ends_with", "replace", "substring"):
            return self._of_text(call)
        if name in ("is_null", "is_nan", "is_in"):
            return self._null_test(call, kinds)
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            return self._compared(call)
        common = _common(call, kinds, exact=self._exact)
        args = [_as(self._column(arg), kind, common) for arg, kind in zip(call.args, kinds, strict=True)]
        return self._computed(call, args, common)

    def _elsewhere(self, call: Call) -> Any:
        self._refuse(f"{call}: {_ELSEWHERE[call.name]}")
        if call.name == "round":
            return self.F.round(self._column(call.args[0]), call.args[1].value)  # type: ignore[attr-defined]
        function: Callable[..., Any] = getattr(self.F, _SPARKS[call.name])
        return function(*map(self._column, call.args))

    def _sides(self, call: Call) -> tuple[tuple[Any, Any], list[bool]]:
        """Return both sides of a comparison in one type, and which of them may be NaN."""
        kinds = [arg.type_in(self._schema) for arg in call.args]
        moments = self._moments(call)
        if moments is not None:
            return moments, [False, False]
        common = _common(call, kinds, exact=self._exact)
        a, b = (_as(self._column(arg), kind, common) for arg, kind in zip(call.args, kinds, strict=True))
        return (a, b), [_may_be_nan(arg, kind) for arg, kind in zip(call.args, kinds, strict=True)]

    def _moments(self, call: Call) -> tuple[Any, Any] | None:
        """Return a timestamp and a constant beside it as two timestamps, which is what sources can compare."""
        match call.args:
            case (Named(name), Literal(int(value))) if name in self._columns.timestamps:
                return self._by_name(name), self.F.timestamp_micros(self.F.lit(value))
            case (Literal(int(value)), Named(name)) if name in self._columns.timestamps:
                return self.F.timestamp_micros(self.F.lit(value)), self._by_name(name)
        return None

    def _compared(self, call: Call) -> Any:
        """Compare as IEEE 754 does: nothing is equal to NaN, less or greater than it."""
        sides, may_be_nan = self._sides(call)
        result, greater = _plain(call.name, *sides), _greater(call.name)
        if not self._exact or not may_be_nan[greater]:
            return result
        # Spark's NaN is the greatest number and equals itself, so Spark can only be wrong when the greater side is NaN
        sure = ~self.F.isnan(sides[greater]) | sides[1 - greater].isNull()
        return self.F.when(sure, result).otherwise(call.name == "ne")

    def _computed(self, call: Call, args: list[Any], kind: Type) -> Any:
        F, name = self.F, call.name
        if name in ("add", "sub", "mul", "neg", "abs") and kind in _WHOLE:
            self._refuse(f"{call}: Spark cannot set a record apart whose result does not fit 64 bits; cast to float")
        match name:
            case "add" if kind == "text":
                return F.concat(*args)
            case "add":
                return args[0] + args[1]
            case "sub":
                return args[0] - args[1]
            case "mul":
                return args[0] * args[1]
            case "neg":
                return -args[0]
            case "not":
                return ~args[0]
            case "and":
                return args[0] & args[1]
            case "or":
                return args[0] | args[1]
            case "abs":
                return F.abs(args[0])
            case "sqrt" if kind != "float32" or not self._exact:
                return F.sqrt(_cast(args[0], "float"))
            case "floor" | "ceil" if kind in _WHOLE:
                return args[0]
            case "floor" | "ceil" if not self._exact:
                return F.floor(args[0]) if name == "floor" else F.ceil(args[0])
            case "div" | "floordiv" | "mod":
                return self._divided(call, args, kind)
            case "least" | "greatest" if kind in _WHOLE or not self._exact:
                # Spark leaves nulls out, a batch does not
                missing = args[0].isNull()
                for arg in args[1:]:
                    missing = missing | arg.isNull()
                return F.when(~missing, F.least(*args) if name == "least" else F.greatest(*args))
        raise NotNativeError(f"{call}: Spark's {name} of {kind} is another one")

    def _divided(self, call: Call, args: list[Any], kind: Type) -> Any:
        divisor = call.args[1].value if isinstance(call.args[1], Literal) else 0
        if call.name == "div":
            if not divisor or kind == "float32":
                self._refuse(f"{call}: what Spark divides by zero is null; only constants above or below it are safe")
                return self.F.try_divide(_cast(args[0], "float"), _cast(args[1], "float"))
            return _cast(args[0], "float") / _cast(args[1], "float")
        if kind not in _WHOLE or divisor <= 0:
            raise NotNativeError(
                f"{call}: Spark rounds towards zero; only whole numbers by constants above zero are safe"
            )
        if call.name == "mod":
            return self.F.pmod(args[0], args[1])
        below = self.F.when(args[0] % args[1] < 0, 1).otherwise(0)
        return self.F.call_function("div", args[0], args[1]) - below

    def _null_test(self, call: Call, kinds: list[Type]) -> Any:
        column = self._column(call.args[0])
        if call.name == "is_null":
            return column.isNull()
        if call.name == "is_nan":
            # asked of null, Spark says no
            return self.F.when(column.isNotNull(), self.F.isnan(column) if kinds[0] in _FLOATS else self.F.lit(False))
        if len(kinds) == 1 or kinds[0] in _FLOATS or len(set(kinds)) > 1:
            raise NotNativeError(
                f"{call}: only for whole numbers and text, and values of that type, is this sure to be the same"
            )
        return column.isin([arg.value for arg in call.args[1:] if isinstance(arg, Literal)])

    def _choice(self, call: Call, kind: Type) -> Any:
        args = [self._column(arg) for arg in call.args]
        if call.name == "when":
            return self.F.when(args[0], _cast(args[1], kind)).otherwise(_cast(args[2], kind))
        return self.F.coalesce(*(_cast(arg, kind) for arg in args))

    def _converted(self, call: Call, source: Type, target: Type) -> Any:
        column = self._column(call.args[0])
        same = source == target or {source, target} <= set(_WHOLE)
        is_wider = source in (*_WHOLE, "bool") and target in ("int", "float", "time")
        is_text = target == "text" and source in ("int", "bool")
        if same or is_wider or is_text or (source, target) == ("float32", "float"):
            return _cast(column, target)
        if self._exact or "time" in (source, target):
            raise NotNativeError(f"{call}: Spark converts {source} to {target} by other rules")
        return column.try_cast(SPARK_TYPES[target])

    def _of_text(self, call: Call) -> Any:
        column = self._column(call.args[0])
        arguments = [arg.value for arg in call.args[1:] if isinstance(arg, Literal)]
        match call.name, arguments:
            case "length", []:
                return _cast(self.F.length(column), "int")
            case "contains", [part]:
                return column.contains(part)
            case "starts_with", [part]:
                return column.startswith(part)
            case "ends_with", [part]:
                return column.endswith(part)
            case "replace", [old, new] if old:
                return self.F.replace(column, self.F.lit(old), self.F.lit(new))
            case "substring", [start, stop] if 0 <= start <= stop:
                return column.substr(start + 1, stop - start)
        raise NotNativeError(f"{call}: Spark has no {call.name} with these arguments")


def _cast(column: Any, kind: Type) -> Any:
    return column.cast(SPARK_TYPES[kind])


def _as(column: Any, kind: Type, common: Type) -> Any:
    return column if kind == common else _cast(column, common)


def _common(call: Call, kinds: list[Type], *, exact: bool) -> Type:
    """Return the type in which NumPy computes; a constant takes that of the column beside it."""
    columns = {k for arg, k in zip(call.args, kinds, strict=True) if not isinstance(arg, Literal)} or set(kinds)
    if columns <= set(_WHOLE):
        return "float" if set(kinds) & set(_FLOATS) else "int"
    if "float32" in columns and columns & set(_WHOLE):
        if exact:
            raise NotNativeError(f"{call}: Spark computes float32 with whole numbers in float32, NumPy in float64")
        return "float"
    return "float" if "float" in columns else next(iter(columns))


def _may_be_nan(arg: Expr, kind: Type) -> bool:
    return kind in _FLOATS and not (isinstance(arg, Literal) and not math.isnan(arg.value))


def _plain(name: str, a: Any, b: Any) -> Any:
    """Compare as Spark does."""
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[name]


def _greater(name: str) -> int:
    """Return which side of a comparison that holds is not the lesser one."""
    return 1 if name in ("lt", "le") else 0
