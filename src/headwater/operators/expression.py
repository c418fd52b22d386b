"""Runs column expressions on batches: a tree of closures made once, called per batch.

Floats follow IEEE 754: 1/0 is infinite, the root of -1 is NaN. Runners switch off NumPy's warnings about it.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.errors import FlowError
from headwater.flow.batch import Batch
from headwater.flow.column import Array, Column, Nullable, Text, column_of, nullable, parts
from headwater.flow.expr import Call, Expr, Literal
from headwater.flow.expr import Column as ColumnExpr
from headwater.flow.schema import DTYPES, Schema, Type

Evaluate = Callable[[Batch], Any]  #: gives a column, or a Python constant that stands for one

_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": op.add,
    "sub": op.sub,
    "mul": op.mul,
    "div": op.truediv,
    "floordiv": op.floordiv,
    "mod": op.mod,
    "pow": op.pow,
    "eq": op.eq,
    "ne": op.ne,
    "lt": op.lt,
    "le": op.le,
    "gt": op.gt,
    "ge": op.ge,
    "neg": op.neg,
    "not": op.invert,
    "abs": np.abs,
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
_TEXT_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def compiled(expr: Expr, schema: Schema) -> Callable[[Batch], Column]:
    """Return a function that computes `expr` over batches of this schema."""
    kind = expr.type_in(schema)
    evaluate = _compile(expr, schema)
    dtype = DTYPES.get(kind)

    def column(batch: Batch) -> Column:
        value = evaluate(batch)
        if type(value) is np.ndarray:
            return value if value.dtype == dtype else value.astype(dtype)
        if isinstance(value, Text | Nullable):
            return value
        return _spread(value, kind, batch.length)

    return column


def compiled_mask(expr: Expr, schema: Schema) -> Callable[[Batch], Array]:
    """Return a function that computes a condition; a missing answer counts as no."""
    if expr.type_in(schema) != "bool":
        raise FlowError(f"a condition is true or false; {expr} is {expr.type_in(schema)}")
    evaluate = compiled(expr, schema)

    def mask(batch: Batch) -> Array:
        value = evaluate(batch)
        return value.values & value.valid if isinstance(value, Nullable) else value  # type: ignore[return-value]

    return mask


def _spread(value: Any, kind: Type, length: int) -> Column:
    return Text.of([value] * length) if kind == "text" else np.full(length, value, DTYPES[kind])


def _compile(expr: Expr, schema: Schema) -> Evaluate:
    match expr:
        case ColumnExpr(name):
            return lambda batch: batch.columns[name]
        case Literal(value):
            return lambda batch: value
        case Call():
            return _compile_call(expr, schema)
    raise FlowError(f"not an expression: {expr!r}")


def _compile_call(call: Call, schema: Schema) -> Evaluate:
    kinds = [arg.type_in(schema) for arg in call.args]
    args = [_compile(arg, schema) for arg in call.args]
    name = call.name
    if name in ("and", "or"):
        return _logic(args, stop_at=name == "or")
    if name == "is_null":
        return lambda batch: _is_null(args[0](batch), batch.length)
    if name in ("fill_null", "coalesce"):
        return _coalesce(args, call.type_in(schema))
    if name == "when":
        return _when(args, call.type_in(schema))
    if name == "cast":
        return _cast(args[0], kinds[0], call.type_in(schema))
    if name == "is_in":
        return _is_in(args[0], kinds[0], [arg.value for arg in call.args[1:]])  # type: ignore[attr-defined]
    if "text" in kinds:
        return _text_function(call, args)
    function = _integer_safe(name) if set(kinds) <= {"int", "time"} else _NUMBERS[name]
    if name in ("least", "greatest") and len(args) > 2:
        return lambda batch: _reduced(function, [arg(batch) for arg in args])
    if len(args) == 1:
        return _unary(function, args[0])
    return _binary(function, args[0], args[1])


def _integer_safe(name: str) -> Callable[..., Any]:
    """Return the function for whole numbers, where dividing by zero gives a missing value instead of a wrong 0."""
    function = _NUMBERS[name]
    if name in ("floor", "ceil"):
        return lambda a: a
    if name not in ("floordiv", "mod"):
        return function

    def divided(a: Any, b: Any) -> Any:
        zero = np.broadcast_to(np.asarray(b) == 0, np.broadcast_shapes(np.shape(a), np.shape(b)))
        result = function(a, np.where(np.asarray(b) == 0, 1, b))
        return nullable(result, ~zero) if zero.any() else result

    return divided


def _unary(function: Callable[..., Any], arg: Evaluate) -> Evaluate:
    def run(batch: Batch) -> Any:
        value = arg(batch)
        if isinstance(value, Nullable):
            return Nullable(function(value.values), value.valid)
        return function(value)

    return run


def _binary(function: Callable[..., Any], left: Evaluate, right: Evaluate) -> Evaluate:
    def run(batch: Batch) -> Any:
        a, b = left(batch), right(batch)
        if isinstance(a, Nullable) or isinstance(b, Nullable):
            return _with_nulls(function, a, b)
        return function(a, b)

    return run


def _with_nulls(function: Callable[..., Any], *args: Any) -> Any:
    values, masks = zip(*(parts(arg) for arg in args), strict=True)
    valid = np.logical_and.reduce([mask for mask in masks if mask is not None])
    result, own = parts(function(*values))
    return Nullable(result, valid if own is None else valid & own)


def _reduced(function: Callable[..., Any], values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = _with_nulls(function, result, value) if _any_null(result, value) else function(result, value)
    return result


def _any_null(*values: Any) -> bool:
    return any(isinstance(value, Nullable) for value in values)


def _logic(args: list[Evaluate], *, stop_at: bool) -> Evaluate:
    """Return three-valued and/or: a missing side does not matter where the other side decides."""
    plain = op.or_ if stop_at else op.and_

    def run(batch: Batch) -> Any:
        a, b = args[0](batch), args[1](batch)
        if not _any_null(a, b):
            return plain(a, b)
        (x, x_valid), (y, y_valid) = parts(a), parts(b)
        knows_x = np.ones(batch.length, np.bool_) if x_valid is None else x_valid
        knows_y = np.ones(batch.length, np.bool_) if y_valid is None else y_valid
        decided = (knows_x & (x == stop_at)) | (knows_y & (y == stop_at))
        return nullable(np.where(decided, stop_at, plain(x, y)), decided | (knows_x & knows_y))

    return run


def _is_null(value: Any, length: int) -> Array:
    if isinstance(value, Nullable):
        return ~value.valid
    if isinstance(value, np.ndarray) and value.dtype == object:
        return np.array([item is None for item in value], np.bool_)
    return np.zeros(length, np.bool_)


def _coalesce(args: list[Evaluate], kind: Type) -> Evaluate:
    def run(batch: Batch) -> Any:
        result = args[0](batch)
        for arg in args[1:]:
            if not isinstance(result, Nullable):
                break
            result = _choose(result.valid, result.values, arg(batch), kind, batch.length)
        return result

    return run


def _when(args: list[Evaluate], kind: Type) -> Evaluate:
    def run(batch: Batch) -> Any:
        condition, mask = parts(args[0](batch))
        where = condition if mask is None else condition & mask
        where = np.broadcast_to(np.asarray(where), batch.length)
        return _choose(where, args[1](batch), args[2](batch), kind, batch.length)

    return run


def _choose(where: Array, then: Any, otherwise: Any, kind: Type, length: int) -> Any:
    a: Any
    b: Any
    (a, a_valid), (b, b_valid) = parts(then), parts(otherwise)
    if kind == "text":
        a = a.tolist() if isinstance(a, Text) else [a] * length
        b = b.tolist() if isinstance(b, Text) else [b] * length
        result: Any = Text.of([x if w else y for w, x, y in zip(where.tolist(), a, b, strict=True)])
    else:
        result = np.where(where, a, b).astype(DTYPES[kind], copy=False)
    if a_valid is None and b_valid is None:
        return result
    every = np.ones(length, np.bool_)
    valid = np.where(where, every if a_valid is None else a_valid, every if b_valid is None else b_valid)
    return nullable(result, valid)


def _is_in(arg: Evaluate, kind: Type, values: list[Any]) -> Evaluate:
    wanted = frozenset(values)

    def run(batch: Batch) -> Any:
        found, valid = parts(arg(batch))
        if kind == "text":
            result = np.array([item in wanted for item in found.tolist()], np.bool_)
        else:
            result = np.isin(found, values)  # type: ignore[arg-type]
        return result if valid is None else Nullable(result, valid)

    return run


def _cast(arg: Evaluate, source: Type, target: Type) -> Evaluate:
    def run(batch: Batch) -> Any:
        values, valid = parts(arg(batch))
        result = _converted(values, source, target)
        if valid is None:
            return result
        inner, own = parts(result)
        return Nullable(inner, valid if own is None else valid & own)

    return run


def _converted(values: Any, source: Type, target: Type) -> Any:
    if source == target:
        return values
    if target == "text":
        return Text.of([_written(value) for value in values.tolist()])
    if source == "text":
        return column_of([_parsed(text, target) for text in values.tolist()], target)
    if target in ("int", "time") and source in ("float", "float32"):
        fits = np.isfinite(values)
        return nullable(np.where(fits, values, 0).astype(np.int64), fits)
    return values.astype(DTYPES[target])


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(text: str, kind: Type) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}.get(text.strip().lower())
        return float(text) if kind in ("float", "float32") else int(text)
    except ValueError:
        return None


def _text_function(call: Call, args: list[Evaluate]) -> Evaluate:
    import pyarrow as pa
    import pyarrow.compute as pc

    constants = [arg.value if isinstance(arg, Literal) else None for arg in call.args]
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
        **{ours: getattr(pc, theirs) for ours, theirs in _TEXT_COMPARISONS.items()},
    }
    function = functions[call.name]

    def arrow(value: Any) -> Any:
        return value.to_arrow() if isinstance(value, Text) else pa.scalar(value)

    def run(batch: Batch) -> Any:
        split = [parts(arg(batch)) for arg in args]
        result = _from_arrow(function(*(arrow(values) for values, _ in split)))
        masks = [mask for _, mask in split if mask is not None]
        return Nullable(result, np.logical_and.reduce(masks)) if masks else result

    return run


def _from_arrow(result: Any) -> Any:
    import pyarrow as pa

    if isinstance(result, pa.Scalar):
        return result.as_py()
    if pa.types.is_string(result.type):
        return Text.from_arrow(result)
    values = result.to_numpy(zero_copy_only=False)
    return values.astype(np.int64) if values.dtype == np.int32 else values
