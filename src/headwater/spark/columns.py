"""Column expressions as Spark Columns, wherever Spark means the same by them.

It does not everywhere: Spark's NaN equals itself and is greater than any number, dividing by zero gives null, rounding and
capital letters follow Java; a whole number that does not fit 64 bits wraps around or ends the query, where here its record
is set apart. What can be said otherwise with the same meaning is; what cannot is `NotNativeError`, with the reason, and
runs in Python. All this holds only while `spark.sql.ansi.enabled` is off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headwater.data.schema import Schema, Type
from headwater.flow.expr import Call, Expr, Literal
from headwater.flow.expr import Column as Named

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


class NotNativeError(Exception):
    """Says why an expression has to run in Python."""


def native(expr: Expr, schema: Schema) -> Column:
    """Return the Column that means the same over a table of this schema; raises NotNativeError when there is none."""
    return _cast(_column(expr, schema), expr.type_in(schema))


def schema_of(table: DataFrame) -> Schema:
    """Return the schema of those columns of a table that expressions can read."""
    return Schema.of({name: _TYPES[kind] for name, kind in table.dtypes if kind in _TYPES})


def why_not(expr: Expr, schema: Schema) -> str | None:
    """Return why an expression has to run in Python; None when it need not.

    >>> from headwater import col
    >>> why_not(col.x ** 2, Schema.of({"x": float}))
    '(col.x ** 2): powers differ in the last digit'
    """
    try:
        native(expr, schema)
    except NotNativeError as reason:
        return str(reason)
    return None


def _cast(column: Column, kind: Type) -> Column:
    return column.cast(SPARK_TYPES[kind])


def _column(expr: Expr, schema: Schema) -> Column:
    from pyspark.sql import functions as F

    kind = expr.type_in(schema)
    if kind not in SPARK_TYPES:
        raise NotNativeError(f"{expr}: Spark has no type for {kind!r}")
    match expr:
        case Named(name):
            return F.col(f"`{name}`")
        case Literal(value):
            return _cast(F.lit(value), kind)
        case Call():
            return _call(expr, schema)
    raise NotNativeError(f"{expr} is no expression")


def _call(call: Call, schema: Schema) -> Column:
    name = call.name
    if name in _ELSEWHERE:
        raise NotNativeError(f"{call}: {_ELSEWHERE[name]}")
    kinds = [arg.type_in(schema) for arg in call.args]
    if name == "cast":
        return _converted(call, _column(call.args[0], schema), kinds[0], call.type_in(schema))
    if name in ("fill_null", "coalesce", "when"):
        return _chosen(call, [_column(arg, schema) for arg in call.args], call.type_in(schema))
    if name in ("length", "contains", "starts_with", "ends_with", "replace", "substring"):
        return _of_text(call, _column(call.args[0], schema))
    if name in ("is_null", "is_nan", "is_in"):
        return _asked(call, _column(call.args[0], schema), kinds)
    common = _common(call, kinds)
    args = [_as(_column(arg, schema), kind, common) for arg, kind in zip(call.args, kinds, strict=True)]
    if name in ("eq", "ne", "lt", "le", "gt", "ge"):
        return _compared(name, args, [_may_be_nan(arg, kind) for arg, kind in zip(call.args, kinds, strict=True)])
    return _computed(call, args, common)


def _common(call: Call, kinds: list[Type]) -> Type:
    """Return the type in which NumPy computes; a constant takes that of the column beside it."""
    columns = {k for arg, k in zip(call.args, kinds, strict=True) if not isinstance(arg, Literal)} or set(kinds)
    if columns <= set(_WHOLE):
        return "float" if set(kinds) & set(_FLOATS) else "int"
    if "float32" in columns and columns & set(_WHOLE):
        raise NotNativeError(f"{call}: Spark computes float32 with whole numbers in float32, NumPy in float64")
    return "float" if "float" in columns else next(iter(columns))


def _as(column: Column, kind: Type, common: Type) -> Column:
    return column if kind == common else _cast(column, common)


def _may_be_nan(arg: Expr, kind: Type) -> bool:
    return kind in _FLOATS and not (isinstance(arg, Literal) and not math.isnan(arg.value))


def _compared(name: str, args: list[Column], may_be_nan: list[bool]) -> Column:
    """Compare as IEEE 754 does: nothing is equal to NaN, less or greater than it."""
    from pyspark.sql import functions as F

    a, b = args
    result = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[name]
    # Spark's NaN is the greatest number and equals itself, so Spark can only be wrong when the greater side is NaN
    greater = 1 if name in ("lt", "le") else 0
    if not may_be_nan[greater]:
        return result
    return F.when(~F.isnan(args[greater]) | args[1 - greater].isNull(), result).otherwise(name == "ne")


def _computed(call: Call, args: list[Column], kind: Type) -> Column:
    from pyspark.sql import functions as F

    name = call.name
    if name in ("add", "sub", "mul", "neg", "abs") and kind in _WHOLE:
        raise NotNativeError(
            f"{call}: Spark cannot set a record apart whose result does not fit 64 bits; cast to float"
        )
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
        case "sqrt" if kind != "float32":
            return F.sqrt(_cast(args[0], "float"))
        case "floor" | "ceil" if kind in _WHOLE:
            return args[0]
        case "div" | "floordiv" | "mod":
            return _divided(call, args, kind)
        case "least" | "greatest" if kind in _WHOLE:
            # Spark leaves nulls out, a batch does not
            missing = args[0].isNull()
            for arg in args[1:]:
                missing = missing | arg.isNull()
            return F.when(~missing, F.least(*args) if name == "least" else F.greatest(*args))
    raise NotNativeError(f"{call}: Spark's {name} of {kind} is another one")


def _divided(call: Call, args: list[Column], kind: Type) -> Column:
    from pyspark.sql import functions as F

    divisor = call.args[1].value if isinstance(call.args[1], Literal) else 0
    if call.name == "div":
        if not divisor or kind == "float32":
            raise NotNativeError(
                f"{call}: what Spark divides by zero is null; only constants above or below it are safe"
            )
        return _cast(args[0], "float") / _cast(args[1], "float")
    if kind not in _WHOLE or divisor <= 0:
        raise NotNativeError(f"{call}: Spark rounds towards zero; only whole numbers by constants above zero are safe")
    if call.name == "mod":
        return F.pmod(args[0], args[1])
    below = F.when(args[0] % args[1] < 0, 1).otherwise(0)
    return F.call_function("div", args[0], args[1]) - below


def _asked(call: Call, column: Column, kinds: list[Type]) -> Column:
    from pyspark.sql import functions as F

    if call.name == "is_null":
        return column.isNull()
    if call.name == "is_nan":
        # asked of null, Spark says no
        return F.when(column.isNotNull(), F.isnan(column) if kinds[0] in _FLOATS else F.lit(False))
    if kinds[0] in _FLOATS or len(set(kinds)) > 1 or len(kinds) == 1:
        raise NotNativeError(
            f"{call}: only for whole numbers and text, and values of that type, is this sure to be the same"
        )
    return column.isin([arg.value for arg in call.args[1:] if isinstance(arg, Literal)])


def _chosen(call: Call, args: list[Column], kind: Type) -> Column:
    from pyspark.sql import functions as F

    if call.name == "when":
        return F.when(args[0], _cast(args[1], kind)).otherwise(_cast(args[2], kind))
    return F.coalesce(*(_cast(arg, kind) for arg in args))


def _converted(call: Call, column: Column, source: Type, target: Type) -> Column:
    same = source == target or {source, target} <= set(_WHOLE)
    widened = source in (*_WHOLE, "bool") and target in ("int", "float", "time")
    written = target == "text" and source in ("int", "bool")
    if same or widened or written or (source, target) == ("float32", "float"):
        return _cast(column, target)
    raise NotNativeError(f"{call}: Spark converts {source} to {target} by other rules")


def _of_text(call: Call, column: Column) -> Column:
    from pyspark.sql import functions as F

    given = [arg.value for arg in call.args[1:] if isinstance(arg, Literal)]
    match call.name, given:
        case "length", []:
            return _cast(F.length(column), "int")
        case "contains", [part]:
            return column.contains(part)
        case "starts_with", [part]:
            return column.startswith(part)
        case "ends_with", [part]:
            return column.endswith(part)
        case "replace", [old, new] if old:
            return F.replace(column, F.lit(old), F.lit(new))
        case "substring", [start, stop] if 0 <= start <= stop:
            return column.substr(start + 1, stop - start)
    raise NotNativeError(f"{call}: Spark has no {call.name} with these arguments")
