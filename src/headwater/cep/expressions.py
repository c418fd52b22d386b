"""From a query's expressions to the flow's, checked on the way; a wrong one is marked in the text."""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn

from headwater.cep import syntax as s
from headwater.cep.diagnostics import error_at
from headwater.cep.functions import AGGREGATES, COMPARISONS, FUNCTIONS, OPERATORS
from headwater.cep.printer import value as text_of
from headwater.data.schema import NUMERIC, Schema, Type
from headwater.errors import FlowError, suggestion
from headwater.flow.expr import Call, Column, Expr, Literal

#: Finds the column and type of an attribute, or complains of it.
Resolve = Callable[[s.Attribute], tuple[str, Type]]


class Translator:
    """Makes flow expressions of a query's; `resolve` knows the columns."""

    def __init__(self, text: str, resolve: Resolve) -> None:
        self.text, self.resolve = text, resolve

    def condition(self, value: s.Value) -> Expr:
        """Return the expression of something that must be true or false."""
        expr, kind = self.translate(value)
        if kind != "bool":
            self.complain(value, f"a condition is true or false; {text_of(value)} is {kind}")
        return expr

    def conjunction(self, values: Sequence[s.Value]) -> Expr:
        """Return the expression of conditions that must all hold."""
        return reduce(op.and_, map(self.condition, values))

    def translate(self, value: s.Value) -> tuple[Expr, Type]:
        """Return the expression and its type."""
        match value:
            case s.Constant(constant):
                return self._constant(value, constant)
            case s.Attribute():
                name, kind = self.resolve(value)
                return Column(name), kind
            case s.IsNull(inner):
                return self.translate(inner)[0].is_null(), "bool"
            case s.Function():
                return self._function(value)
            case s.Operation():
                return self._operation(value)

    def _constant(self, value: s.Value, constant: Any) -> tuple[Expr, Type]:
        try:
            return Literal(constant), Literal(constant).type_in(Schema(()))
        except FlowError as error:
            self.complain(value, str(error))

    def _operation(self, value: s.Operation) -> tuple[Expr, Type]:
        match value:
            case s.Operation("-", (s.Constant(int() | float() as constant),)) if not isinstance(constant, bool):
                return self._constant(value, -constant)  # the least whole number has no counterpart above zero
        operands = [self.translate(arg) for arg in value.args]
        exprs, kinds = [expr for expr, _ in operands], [kind for _, kind in operands]
        sign = value.op
        if sign in ("and", "or", "not"):
            self._all(value, kinds, ("bool",), f"'{sign}' joins conditions")
            return (~exprs[0] if sign == "not" else Call(sign, (exprs[0], exprs[1]))), "bool"
        if OPERATORS[sign] in COMPARISONS:
            self._comparable(value, kinds)
            return Call(OPERATORS[sign], (exprs[0], exprs[1])), "bool"
        if sign == "+" and kinds == ["text", "text"]:
            return exprs[0] + exprs[1], "text"
        times = {"time"} if sign in ("+", "-") and len(kinds) == 2 else set()
        self._all(value, kinds, (*NUMERIC, *times), f"'{sign}' works on numbers")
        if len(exprs) == 1:
            return -exprs[0], kinds[0]
        # as in Siddhi, whole numbers divide to whole numbers, and the sign of a remainder is that of the left side
        name = "quotient" if sign == "/" and kinds == ["int", "int"] else OPERATORS[sign]
        return self._with_type(
            value, Call(name, tuple(exprs)), kinds, f"{' and '.join(kinds)} do not go together in {text_of(value)}"
        )

    def _with_type(self, value: s.Value, expr: Call, kinds: list[Type], wrong: str) -> tuple[Expr, Type]:
        """Return an expression and its type, given those of its first arguments: stand-ins take the place of columns."""
        stand_in = Call(expr.name, (*(Column(f"c{i}") for i in range(len(kinds))), *expr.args[len(kinds) :]))
        try:
            return expr, stand_in.type_in(Schema(tuple((f"c{i}", kind) for i, kind in enumerate(kinds))))
        except FlowError:
            self.complain(value, wrong)

    def _function(self, value: s.Function) -> tuple[Expr, Type]:
        if value.name in AGGREGATES:
            self.complain(value, f"{value.name}() needs a window, and stands in 'select' or 'having' only")
        if value.name not in FUNCTIONS:
            names = [*FUNCTIONS, *AGGREGATES]
            near = suggestion(value.name, names) or next(
                (f"; did you mean {name!r}?" for name in names if name.partition(":")[2] == value.name.lower()), ""
            )
            self.complain(value, f"there is no function {value.name!r}{near}")
        function = FUNCTIONS[value.name]
        self.count_arguments(value, function.least, function.most)
        arguments = [self.translate(arg) for arg in value.args]
        kinds = [kind for _, kind in arguments]
        expr = Call(function.of_flow, (*(expr for expr, _ in arguments), *function.constants))
        return self._with_type(value, expr, kinds, f"{value.name}() does not take ({', '.join(kinds)})")

    def count_arguments(self, value: s.Function, least: int, most: int | None) -> None:
        """Complain when a call has too few or too many arguments."""
        if least <= len(value.args) <= (len(value.args) if most is None else most):
            return
        expected = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        self.complain(
            value, f"{value.name}() takes {expected} argument{'' if expected == '1' else 's'}; got {len(value.args)}"
        )

    def _all(self, value: s.Operation, kinds: list[Type], expected: tuple[str, ...], what: str) -> None:
        for arg, kind in zip(value.args, kinds, strict=True):
            if kind not in expected:
                self.complain(arg, f"{what}; {text_of(arg)} is {kind}")

    def _comparable(self, value: s.Operation, kinds: list[Type]) -> None:
        left, right = kinds
        if left == right or {left, right} <= {*NUMERIC, "time"}:
            return
        fix = ""
        for side, other in ((value.args[0], right), (value.args[1], left)):
            if (
                isinstance(side, s.Constant)
                and isinstance(side.value, str)
                and other in NUMERIC
                and _number(side.value)
            ):
                fix = f"; did you mean {side.value} without quotes?"
        self.complain(value, f"cannot compare {left} with {right} in {text_of(value)}{fix}")

    def complain(self, value: s.Value, message: str) -> NoReturn:
        """Raise an error that marks this expression."""
        raise error_at(self.text, value.at, message)


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def conjuncts(values: tuple[s.Value, ...]) -> list[s.Value]:
    """Take conditions joined by `and` apart."""
    parts: list[s.Value] = []
    for value in values:
        if isinstance(value, s.Operation) and value.op == "and":
            parts += conjuncts(value.args)
        else:
            parts.append(value)
    return parts


def rename_columns(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Return an expression that reads the same columns under other names."""
    match expr:
        case Column(name):
            return Column(names[name])
        case Call(name, args):
            return Call(name, tuple(rename_columns(arg, names) for arg in args))
    return expr
