"""Runs column expressions: a tree of closures made once, called per batch, or on the values of a single record.

Floats follow IEEE 754: 1/0 is infinite, the root of -1 is NaN. Runners switch off NumPy's warnings about it. A whole number
has 64 bits; where a result does not fit, that record has no answer, and `RecordError` says which ones those are.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Nullable, Text, nullable, parts
from headwater.data.schema import DTYPES, Schema, Type
from headwater.errors import FlowError, RecordError
from headwater.flow.expr import Call, Expr, Literal
from headwater.flow.expr import Column as ColumnExpr
from headwater.operators.cast import as_kind, converter
from headwater.operators.checked_arithmetic import WHOLE, Answer
from headwater.operators.texts import text_function

#: Columns by name; or, for a single record, values.
Values = Mapping[str, Any]
#: Where records have no answer, and why.
Faults = list[tuple[Any, str]]
#: Gives a column, or a single value that stands for one, and adds to the faults.
Evaluate = Callable[[Values, Faults], Any]

_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "quotient": lambda a, b: np.trunc(np.true_divide(a, b)),
    "remainder": np.fmod,
    "pow": np.power,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "neg": np.negative,
    "not": np.logical_not,
    "abs": np.absolute,
    "sqrt": np.sqrt,
    "log": np.log,
    "exp": np.exp,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "is_nan": np.isnan,
    "least": np.minimum,
    "greatest": np.maximum,
}
_EVERY: Any = np.True_


def compile_expression(expr: Expr, schema: Schema, *, unfit_is_missing: bool = False) -> Callable[[Batch], Column]:
    """Return a function that computes `expr` over batches of this schema; it raises RecordError, or leaves holes instead."""
    kind = expr.type_in(schema)
    evaluate = _compile(expr, schema)
    dtype = DTYPES.get(kind)

    def column(batch: Batch) -> Column:
        faults: Faults = []
        value = evaluate(batch.columns, faults)
        if faults and batch.length:
            if not unfit_is_missing:
                _complain(faults, batch.length)
            value = _without(value, faults)
        if type(value) is np.ndarray:
            return value if value.dtype == dtype else value.astype(dtype)
        if isinstance(value, Text) or (isinstance(value, Nullable) and value.valid.ndim):
            return value
        return _spread(value, kind, batch.length)

    return column


def compile_mask(expr: Expr, schema: Schema) -> Callable[[Batch], Array]:
    """Return a function that computes a condition; a missing answer counts as no."""
    if expr.type_in(schema) != "bool":
        raise FlowError(f"a condition is true or false; {expr} is {expr.type_in(schema)}")
    evaluate = compile_expression(expr, schema)

    def mask(batch: Batch) -> Array:
        value = evaluate(batch)
        return value.values & value.valid if isinstance(value, Nullable) else value  # type: ignore[return-value]

    return mask


def compile_single(expr: Expr, schema: Schema) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that computes `expr` for one record, given as Python values, None where missing.

    It is the function of columns called on values, so both agree; it raises RecordError.
    """
    evaluate = _compile(expr, schema)
    fills: dict[str, Any] = {"text": "", "bool": False}
    missing = {name: Nullable(fills.get(kind, 0), ~_EVERY) for name, kind in schema.fields}
    narrow = [name for name in expr.columns() if schema[name] == "float32"]

    def single(record: Mapping[str, Any]) -> Any:
        values = {name: missing[name] if value is None else value for name, value in record.items()}
        for name in narrow:
            if record[name] is not None:
                values[name] = np.float32(record[name])
        faults: Faults = []
        value = evaluate(values, faults)
        if faults:
            _complain(faults, 1)
        if isinstance(value, Nullable):
            value = value.values if value.valid else None
        return value.item() if isinstance(value, np.generic) else value

    return single


def fallible(expr: Expr, schema: Schema) -> bool:
    """Say whether a record may have no answer: whether anything computes with whole numbers, or converts to them."""
    if not isinstance(expr, Call):
        return False
    kinds = [arg.type_in(schema) for arg in expr.args]
    if expr.name == "cast":
        here = expr.type_in(schema) in ("int", "time") and kinds[0] in ("float", "float32", "text")
    else:
        here = expr.name in WHOLE and set(kinds) <= {"int", "time"} and expr.name not in ("floor", "ceil")
    return here or any(fallible(arg, schema) for arg in expr.args)


def _complain(faults: Faults, length: int) -> NoReturn:
    reasons: dict[int, str] = {}
    for mask, why in faults:
        for row in np.flatnonzero(np.broadcast_to(mask, length)).tolist():
            reasons.setdefault(row, why)
    rows = sorted(reasons)
    raise RecordError(rows, [reasons[row] for row in rows])


def _without(value: Any, faults: Faults) -> Any:
    bad = reduce(op.or_, [mask for mask, _ in faults])
    values, valid = parts(value)
    return Nullable(values, ~bad if valid is None else valid & ~bad)


def _spread(value: Any, kind: Type, length: int) -> Column:
    """Return a column of one value."""
    if isinstance(value, Nullable):
        spread = _spread(value.values, kind, length)
        assert not isinstance(spread, Nullable)
        return nullable(spread, np.full(length, value.valid))
    return Text.of([value] * length) if kind == "text" else np.full(length, value, DTYPES[kind])


def _compile(expr: Expr, schema: Schema) -> Evaluate:
    match expr:
        case ColumnExpr(name):
            return lambda values, faults: values[name]
        case Literal(value):
            return lambda values, faults: value
        case Call():
            return _compile_call(expr, schema)
    raise FlowError(f"not an expression: {expr!r}")


def _compile_call(call: Call, schema: Schema) -> Evaluate:
    kinds = [arg.type_in(schema) for arg in call.args]
    args = [_compile(arg, schema) for arg in call.args]
    name, kind = call.name, call.type_in(schema)
    if name in ("and", "or"):
        return _logic(args, stop_at=name == "or")
    if name == "is_null":
        return lambda values, faults: _is_null(args[0](values, faults))
    if name in ("fill_null", "coalesce"):
        return _coalesce(args, kind)
    if name == "when":
        return _when(args, kind)
    if name == "cast":
        return _with_overflow(converter(kinds[0], kind), args[:1], f"{call}: a number does not fit 64 bits")
    if name == "is_in":
        return _is_in(args[0], kinds[0], [arg.value for arg in call.args[1:]])  # type: ignore[attr-defined]
    if "text" in kinds:
        constants = [arg.value if isinstance(arg, Literal) else None for arg in call.args]
        return _strict(text_function(name, constants), args)
    if name in WHOLE and set(kinds) <= {"int", "time"}:
        return _with_overflow(WHOLE[name], args, _why(call))
    if name in ("least", "greatest") and len(args) > 2:
        return reduce(lambda a, b: _strict(_NUMBERS[name], [a, b]), args)
    return _strict(_NUMBERS[name], args)


def _why(call: Call) -> str:
    if call.name == "pow":
        return f"{call}: the result is no whole number of 64 bits; cast to float for others"
    return f"{call}: the result does not fit a whole number of 64 bits"


def _strict(function: Callable[..., Any], args: list[Evaluate]) -> Evaluate:
    """Return the form of a function that is missing wherever an argument is."""
    if len(args) == 1:
        arg = args[0]

        def one(values: Values, faults: Faults) -> Any:
            value = arg(values, faults)
            return Nullable(function(value.values), value.valid) if isinstance(value, Nullable) else function(value)

        return one
    if len(args) == 2:
        left, right = args

        def two(values: Values, faults: Faults) -> Any:
            a, b = left(values, faults), right(values, faults)
            if isinstance(a, Nullable) or isinstance(b, Nullable):
                return _with_nulls(function, (a, b))
            return function(a, b)

        return two
    return lambda values, faults: _with_nulls(function, [arg(values, faults) for arg in args])


def _with_nulls(function: Callable[..., Any], args: Any) -> Any:
    split = [parts(arg) for arg in args]
    masks = [mask for _, mask in split if mask is not None]
    result = function(*(values for values, _ in split))
    return Nullable(result, reduce(op.and_, masks)) if masks else result


def _with_overflow(function: Callable[..., Answer], args: list[Evaluate], why: str) -> Evaluate:
    """Return the form of a function that may leave 64 bits: where it does is a fault, unless an argument is missing."""

    def run(values: Values, faults: Faults) -> Any:
        inputs = [arg(values, faults) for arg in args]
        valid = None
        for i, value in enumerate(inputs):
            if isinstance(value, Nullable):
                inputs[i] = value.values
                valid = value.valid if valid is None else valid & value.valid
        result, missing, overflow = function(*inputs)
        if overflow is not None and overflow.any():
            overflow = overflow if valid is None else overflow & valid
            if overflow.any():
                faults.append((overflow, why))
        if missing is not None and missing.any():
            valid = ~missing if valid is None else valid & ~missing
        return result if valid is None else Nullable(result, valid)

    return run


def _among(faults: Faults, where: Any) -> Faults:
    """Return the faults of records that are looked at at all."""
    return [(mask & where, why) for mask, why in faults if (mask & where).any()]


def _logic(args: list[Evaluate], *, stop_at: bool) -> Evaluate:
    """Return three-valued and/or: a missing side, or one without an answer, does not matter where the other decides."""
    plain = np.logical_or if stop_at else np.logical_and

    def run(values: Values, faults: Faults) -> Any:
        left: Faults = []
        right: Faults = []
        a, b = args[0](values, left), args[1](values, right)
        if not (isinstance(a, Nullable) or isinstance(b, Nullable) or left or right):
            return plain(a, b)
        (x, knows_x), (y, knows_y) = _values_and_mask(a), _values_and_mask(b)
        by_x, by_y = knows_x & (x == stop_at), knows_y & (y == stop_at)
        for mask, _ in left:
            by_x = by_x & ~mask
        for mask, _ in right:
            by_y = by_y & ~mask
        faults += _among(left, ~by_y) + _among(right, ~by_x)
        decided = by_x | by_y
        return nullable(np.where(decided, stop_at, plain(x, y))[()], decided | (knows_x & knows_y))

    return run


def _values_and_mask(value: Any) -> tuple[Any, Any]:
    """Return values, and where they are not missing."""
    values, valid = parts(value)
    return values, _EVERY if valid is None else valid


def _is_null(value: Any) -> Any:
    if isinstance(value, Nullable):
        return ~value.valid
    if isinstance(value, np.ndarray) and value.dtype == object:
        return np.array([item is None for item in value], np.bool_)
    return ~_EVERY


def _coalesce(args: list[Evaluate], kind: Type) -> Evaluate:
    def run(values: Values, faults: Faults) -> Any:
        result = args[0](values, faults)
        for arg in args[1:]:
            if not isinstance(result, Nullable):
                break
            valid: Any = result.valid
            faults_here: Faults = []
            other = arg(values, faults_here)
            faults += _among(faults_here, ~valid)
            result = _choose(valid, result.values, other, kind)
        return _as(result, kind)

    return run


def _when(args: list[Evaluate], kind: Type) -> Evaluate:
    def run(values: Values, faults: Faults) -> Any:
        condition, knows = _values_and_mask(args[0](values, faults))
        where = knows & condition
        of_then: Faults = []
        of_other: Faults = []
        then, otherwise = args[1](values, of_then), args[2](values, of_other)
        faults += _among(of_then, where) + _among(of_other, ~where)
        return _choose(where, then, otherwise, kind)

    return run


def _choose(where: Any, then: Any, otherwise: Any, kind: Type) -> Any:
    if not np.ndim(where):
        return _as(then if where else otherwise, kind)
    (a, knows_a), (b, knows_b) = _values_and_mask(then), _values_and_mask(otherwise)
    if kind == "text":
        a = a.tolist() if isinstance(a, Text) else [a] * len(where)
        b = b.tolist() if isinstance(b, Text) else [b] * len(where)
        result: Any = Text.of([x if w else y for w, x, y in zip(where.tolist(), a, b, strict=True)])
    else:
        result = np.where(where, a, b).astype(DTYPES[kind], copy=False)
    if knows_a is _EVERY and knows_b is _EVERY:
        return result
    return nullable(result, np.where(where, knows_a, knows_b))


def _as(value: Any, kind: Type) -> Any:
    if kind in ("text", "any", "bool"):
        return value
    if isinstance(value, Nullable):
        return Nullable(as_kind(value.values, kind), value.valid)
    return as_kind(value, kind)


def _is_in(arg: Evaluate, kind: Type, members: list[Any]) -> Evaluate:
    texts = frozenset(members)

    def among(values: Any) -> Any:
        if isinstance(values, Text):
            return np.array([item in texts for item in values.tolist()], np.bool_)
        return np.isin(values, members)[()] if kind != "text" else np.bool_(values in texts)

    return _strict(among, [arg])
