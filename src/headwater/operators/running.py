"""Aggregates that follow a sliding window, for many groups at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Nullable, Text, parts
from headwater.data.keys import KeyIndex
from headwater.data.schema import DTYPES, Schema, Type
from headwater.flow.aggregates import Aggregate
from headwater.operators.expression import compile_expression
from headwater.operators.kernels import slide as k


def following(aggregate: Aggregate, schema: Schema) -> RunningCount | RunningMoments | Extreme | Distinct:
    """Return the running form of an aggregate."""
    match aggregate.function:
        case "count":
            return RunningCount(aggregate, schema)
        case "sum" | "mean" | "std":
            return RunningMoments(aggregate, schema)
        case "min" | "max":
            return Extreme(aggregate, schema)
    return Distinct(aggregate, schema)


class _Running(ABC):
    """What all have in common: the values they read, arrays per group and per node that grow."""

    #: dtype of each array by group, and by node, with what it starts from
    by_group: dict[str, tuple[Any, Any]]
    by_node: dict[str, tuple[Any, Any]]

    def __init__(self, aggregate: Aggregate, schema: Schema) -> None:
        self.function = aggregate.function
        self.out: Type = aggregate.type_in(schema)
        self.kind: Type = aggregate.of.type_in(schema) if aggregate.of is not None else "int"
        self._compute = compile_expression(aggregate.of, schema) if aggregate.of is not None else None
        self.too_far: Array | None = None  #: after which records of the last run the result did not fit, None for none
        self.by_group, self.by_node = self._fields()
        self.g = {name: np.full(0, fill, dtype) for name, (dtype, fill) in self.by_group.items()}
        self.n = {name: np.full(0, fill, dtype) for name, (dtype, fill) in self.by_node.items()}

    @abstractmethod
    def _fields(self) -> tuple[dict[str, tuple[Any, Any]], dict[str, tuple[Any, Any]]]: ...

    def reserve(self, groups: int, nodes: int) -> None:
        """Make room for so many groups and nodes."""
        for arrays, fields, room in ((self.g, self.by_group, groups), (self.n, self.by_node, nodes)):
            for name, (dtype, fill) in fields.items():
                if room > len(arrays[name]):
                    more = np.full(max(room, 2 * len(arrays[name])) - len(arrays[name]), fill, dtype)
                    arrays[name] = np.concatenate([arrays[name], more])

    def save_groups(self, groups: Array) -> dict[str, Any]:
        """Return what the aggregate has come to in these groups."""
        return {name: array[groups] for name, array in self.g.items()}

    def load_groups(self, groups: Array, state: dict[str, Any]) -> None:
        """Go on in these groups from what was saved."""
        for name, array in self.g.items():
            array[groups] = state[name]

    def read(self, batch: Batch) -> Column | None:
        """Return the values of a batch."""
        return self._compute(batch) if self._compute is not None else None


class RunningCount(_Running):
    """Counts records."""

    def _fields(self) -> Any:
        return {"counts": (np.int64, 0)}, {}

    def run(self, column: Column | None, moves: k.Moves) -> Column:
        """Return the count after each record."""
        out = np.empty(len(moves.groups), np.int64)
        k.count_along(tuple(moves), self.g["counts"], out)  # type: ignore[no-untyped-call]
        return out

    def save(self, nodes: Array) -> Column:
        """Return what the nodes hold: nothing but their being there."""
        return np.zeros(len(nodes), np.int64)


class RunningMoments(_Running):
    """Follows a sum, a mean or a standard deviation."""

    def _fields(self) -> Any:
        whole = self.kind == "int" and self.function != "std"
        dtype = np.int64 if whole else np.float64
        sums: dict[str, Any] = dict.fromkeys(("shift", "totals", "lost", "squares", "lost_squares"), (dtype, 0))
        sums["odd"] = (np.dtype((np.int64, 3)), 0)  # how many were NaN, and infinite either way
        return (
            {"seen": (np.int64, 0), **(dict.fromkeys(("totals", "carried"), (dtype, 0)) if whole else sums)},
            {"kept": (dtype, 0), "there": (np.bool_, False)},
        )

    def run(self, column: Column | None, moves: k.Moves) -> Column:
        """Return the result after each record."""
        assert column is not None
        values, valid = _split(column, self.n["kept"].dtype)
        out = np.empty(len(values), self.n["kept"].dtype)
        seen = np.empty(len(values), np.int64)
        g, n = self.g, self.n
        common = (values, valid, tuple(moves), n["kept"], n["there"])
        if out.dtype == np.int64:
            carries = np.empty(len(values), np.int64)
            k.sum_ints(*common, g["totals"], g["carried"], g["seen"], out, carries, seen)  # type: ignore[no-untyped-call]
            return self._of_whole(out, carries, seen)
        sums = tuple(g[name] for name in ("shift", "totals", "lost", "squares", "lost_squares", "odd", "seen"))
        k.sum_floats(*common, sums, self.function == "std", out, seen)  # type: ignore[no-untyped-call]
        result: Array = out / np.maximum(seen, 1) if self.function == "mean" else out
        return _null_where_empty(result.astype(DTYPES[self.out], copy=False), seen)

    def _of_whole(self, totals: Array, carries: Array, seen: Array) -> Column:
        """Return sums or means of whole numbers; `carries` says by how often 2**64 a sum is more than it seems."""
        outside = carries != 0
        if self.function == "mean":
            return _null_where_empty((totals + carries * 2.0**64) / np.maximum(seen, 1), seen)
        self.too_far = outside if outside.any() else None
        return _null_where_empty(totals, seen) if self.too_far is None else Nullable(totals, (seen > 0) & ~outside)

    def save(self, nodes: Array) -> Column:
        """Return the values that the nodes hold."""
        return Nullable(self.n["kept"][nodes], self.n["there"][nodes])


class Extreme(_Running):
    """Follows the smallest or the largest value; NaN is passed over."""

    def _fields(self) -> Any:
        dtype = np.float64 if self.kind in ("float", "float32") else np.int64
        return (
            {"first": (np.int64, -1), "last": (np.int64, -1), "best": (dtype, 0), "seen": (np.int64, 0)},
            {"kept": (dtype, 0), "there": (np.bool_, False), "before": (np.int64, -1), "after": (np.int64, -1)},
        )

    def run(self, column: Column | None, moves: k.Moves) -> Column:
        """Return the extreme after each record."""
        assert column is not None
        g, n = self.g, self.n
        values, valid = _split(column, n["kept"].dtype)
        if values.dtype.kind == "f":
            valid = valid & ~np.isnan(values)
        out, seen = np.zeros(len(values), values.dtype), np.empty(len(values), np.int64)
        in_window = moves.node_of >= 0
        k.extreme(  # type: ignore[no-untyped-call]
            values, valid, tuple(moves), n["kept"], n["before"], n["after"], g["first"], g["last"], g["best"], g["seen"],
            self.function == "max", out, seen,
        )  # fmt: skip
        n["there"][moves.node_of[in_window]] = valid[in_window]
        # values that can never be the extreme are not in the list, but a snapshot needs them
        n["kept"][moves.node_of[in_window]] = values[in_window]
        return _null_where_empty(out.astype(DTYPES[self.out], copy=False), seen)

    def save(self, nodes: Array) -> Column:
        """Return the values that the nodes hold."""
        return Nullable(self.n["kept"][nodes], self.n["there"][nodes])


class Distinct(_Running):
    """Follows the number of different values."""

    def _fields(self) -> Any:
        self._text = self.kind == "text"
        self._codes = KeyIndex("int", "text" if self._text else "float" if self.kind in ("float", "float32") else "int")
        self._uses = np.zeros(0, np.int64)
        return {"found": (np.int64, 0)}, {"kept": (np.int64, -1)}

    def run(self, column: Column | None, moves: k.Moves) -> Column:
        """Return the number after each record."""
        assert column is not None
        values, mask = parts(column)
        valid = np.ones(len(values), np.bool_) if mask is None else mask
        codes = self._codes_of(moves.groups, values if self._text else np.asarray(values))
        out = np.empty(len(values), np.int64)
        k.distinct(codes, valid, tuple(moves), self.n["kept"], self._uses, self.g["found"], out)  # type: ignore[no-untyped-call]
        self._tidy()
        return out

    def _codes_of(self, groups: Array, values: Any) -> Array:
        codes: Array = self._codes.slots([groups, values])
        if len(self._codes) > len(self._uses):
            self._uses = np.concatenate([self._uses, np.zeros(2 * len(self._codes) - len(self._uses), np.int64)])
        return codes

    def save_groups(self, groups: Array) -> dict[str, Any]:
        """Return the number in these groups, and each value that they have seen."""
        code_groups, values = self._codes.keys()
        values = values if isinstance(values, np.ndarray) else Text(values.data, values.offsets)  # type: ignore[assignment]
        place = np.full(len(self.g["found"]), -1, np.int64)
        place[groups] = np.arange(len(groups))
        codes = np.flatnonzero((place[code_groups] >= 0) & (self._uses[: len(self._codes)] > 0))
        entries = {"of": place[code_groups[codes]], "values": values[codes], "uses": self._uses[codes]}
        return {**super().save_groups(groups), **entries}

    def load_groups(self, groups: Array, state: dict[str, Any]) -> None:
        """Go on in these groups from what was saved."""
        super().load_groups(groups, state)
        codes = self._codes_of(groups[state["of"]], state["values"])
        self._uses[codes] = state["uses"]

    def _tidy(self) -> None:
        """Forget values that no window holds, once they are the greater part."""
        used = np.flatnonzero(self._uses[: len(self._codes)])
        if len(self._codes) < 65536 or 2 * len(used) > len(self._codes):
            return
        codes = np.full(len(self._codes) + 1, -1, np.int64)  # the last entry keeps -1 as it is
        codes[used] = np.arange(len(used))
        self.n["kept"] = codes[self.n["kept"]]
        self._codes, self._uses = self._codes.subset(used), self._uses[used]

    def save(self, nodes: Array) -> Column:
        """Return the values that the nodes hold."""
        codes = self.n["kept"][nodes]
        keys = self._codes.keys(np.maximum(codes, 0))[1] if len(self._codes) else np.zeros(len(nodes))
        values = Text(keys.data, keys.offsets) if self._text and not isinstance(keys, np.ndarray) else keys
        return Nullable(values, codes >= 0)  # type: ignore[arg-type]


def _split(column: Column, dtype: Any) -> tuple[Array, Array]:
    values, valid = parts(column)
    assert not isinstance(values, Text)
    return values.astype(dtype, copy=False), np.ones(len(values), np.bool_) if valid is None else valid


def _null_where_empty(values: Array, seen: Array) -> Column:
    return values if seen.all() else Nullable(values, seen > 0)
