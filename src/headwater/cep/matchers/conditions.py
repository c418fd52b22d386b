"""Conditions of a chain on a record and on what an attempt has taken before, computed for one record at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.cep import syntax as s
from headwater.cep.automaton import Absence, Accept, Automaton, Condition, Stage
from headwater.errors import RecordError
from headwater.flow.expr import Column, Expr
from headwater.operators.expression import compile_single

Record = dict[str, Any]
Bindings = dict[str, list[Record]]  #: by event, what an attempt has taken
#: Computes something of what an attempt has taken and the record that it is shown.
Compute = Callable[[tuple[Bindings, Record]], Any]


class Conditions:
    """All conditions that compare a record with earlier ones."""

    def __init__(self, automaton: Automaton) -> None:
        self._of_side = {id(side): [self._compile(c, c.expr) for c in side.cross] for side in automaton.sides()}
        #: of each stage, how to compute both sides of a condition `this record == earlier ones`, where it has one
        self.equal = [None if automaton.strict else self._equality(stage) for stage in automaton.stages]
        self.faults: list[str] = []  #: why the record could not be compared with what attempts took

    def hold(self, side: Accept | Absence, bindings: Bindings, record: Record) -> bool:
        """Say whether a record suits a side, beside what an attempt has taken."""
        return all(holds((bindings, record)) for holds in self._of_side[id(side)])

    def _compile(self, condition: Condition, expr: Expr) -> Compute:
        """Return how to compute a condition, or a part of it; without an answer it is missing, and a fault."""
        if isinstance(expr, Column):
            return reader(condition.reads[expr.name])
        compute = compile_single(expr, condition.schema)
        readers = [(column, reader(condition.reads[column])) for column in expr.columns()]

        def run(moment: tuple[Bindings, Record]) -> Any:
            try:
                return compute({column: read(moment) for column, read in readers})
            except RecordError as error:
                self.faults += error.reasons
                return None

        return run

    def _equality(self, stage: Stage) -> tuple[Compute, Compute] | None:
        if not isinstance(stage, Accept) or stage.counted:
            return None
        for condition in stage.cross:
            for sign, value, other in condition.comparisons():
                if sign == "eq":
                    return self._compile(condition, value), self._compile(condition, other)
        return None


def reader(attribute: s.Attribute) -> Compute:
    """Return how to read an attribute: of the record that is shown, or of one that was taken."""
    name, ref = attribute.name, attribute.ref
    if ref is None:
        return lambda moment: moment[1].get(name)
    index = attribute.index or s.Index(True)
    at = -1 - index.offset if index.back else index.offset

    def earlier(moment: tuple[Bindings, Record]) -> Any:
        records = moment[0].get(ref, ())
        return records[at].get(name) if index.offset < len(records) else None

    return earlier
