"""Accumulators: aggregates of many groups at once, one slot per group."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Nullable, Text, checked_value, column_of, nullable, parts
from headwater.data.schema import DTYPES, Schema, Type
from headwater.flow.aggregates import Aggregate
from headwater.operators.checked_arithmetic import MOST
from headwater.operators.expression import compile_expression
from headwater.operators.fault_isolation import error_text

_NONE = np.zeros(0, np.bool_)
#: What each function keeps per group besides the number of values seen, and what it starts from.
_FIELDS: dict[str, tuple[str, ...]] = {
    "count": (),
    "sum": ("total",),
    "mean": ("total",),
    "std": ("shift", "total", "squares"),
    "min": ("value",),
    "max": ("value",),
    "first": ("value", "order"),
    "last": ("value", "order"),
    "distinct": ("value",),
    "custom": ("value", "places"),
}


class Accumulators:
    """The aggregates of a window, kept for a growing number of groups.

    Missing values are passed over; a group that saw none gives a missing result (`count` counts records). A sum of whole
    numbers may leave 64 bits on its way; one that is outside at the end is missing, and `broken` says so. A mean of whole
    numbers is that of their exact sum, wherever that is.
    """

    def __init__(self, aggregates: tuple[tuple[str, Aggregate], ...], schema: Schema) -> None:
        self.schema = schema
        self._aggregates = aggregates
        self._inputs = [
            compile_expression(aggregate.of, schema) if aggregate.of is not None else None
            for _, aggregate in aggregates
        ]
        self._each = [_Accumulator(name, aggregate, schema) for name, aggregate in aggregates]
        self._arrivals = [0]  #: how many values came so far, counted together with all accumulators made by `empty`
        self._capacity = 0

    def empty(self) -> Accumulators:
        """Return accumulators of the same aggregates with no groups yet."""
        other = object.__new__(Accumulators)
        other.schema, other._aggregates, other._inputs = self.schema, self._aggregates, self._inputs
        other._arrivals = self._arrivals
        other._each = [each.empty() for each in self._each]
        other._capacity = 0
        return other

    def reserve(self, groups: int) -> None:
        """Make room for this many groups."""
        if groups > self._capacity:
            self._capacity = max(groups, 2 * self._capacity, 16)
            for each in self._each:
                each.resize(self._capacity)

    def inputs(self, batch: Batch) -> list[Column | None]:
        """Compute what each aggregate reads."""
        return [compute(batch) if compute is not None else None for compute in self._inputs]

    def arrived(self, count: int) -> Array:
        """Return places in the order of arrival for this many values."""
        self._arrivals[0] += count
        return np.arange(self._arrivals[0] - count, self._arrivals[0])

    def update(self, slots: Array, inputs: list[Column | None], order: Array) -> None:
        """Take values in; `slots[i]` is the group of value i, and `order`, which rises, its place among all arrivals."""
        for each, values in zip(self._each, inputs, strict=True):
            each.update(slots, values, order)

    def merge(self, slots: Array, other: Accumulators, other_slots: Array) -> None:
        """Take in whole groups of `other`: group theirs[i] goes to our group slots[i]; slots must not repeat."""
        for target, source in zip(self._each, other._each, strict=True):
            target.merge(slots, source, other_slots)

    def results(self, slots: Array) -> dict[str, Column]:
        """Return the result columns of these groups."""
        return {name: each.results(slots) for (name, _), each in zip(self._aggregates, self._each, strict=True)}

    def broken(self) -> list[tuple[int, str]]:
        """Return, once, the rows of the last results that could not be computed, and why."""
        faults = [(row, why) for each in self._each for row, why in each.broken]
        for each in self._each:
            each.broken.clear()
        return faults

    def reset(self, slots: Array) -> None:
        """Start these groups anew."""
        for each in self._each:
            each.reset(slots)

    def save(self, slots: Array) -> list[dict[str, Any]]:
        """Return the state of these groups as plain arrays."""
        return [{name: array[slots] for name, array in each.arrays.items()} for each in self._each]

    def load(self, slots: Array, states: list[dict[str, Any]]) -> None:
        """Put saved state into these groups."""
        for each, arrays in zip(self._each, states, strict=True):
            each.load(slots, arrays)
            self._arrivals[0] = max(self._arrivals[0], each.last_place(slots) + 1)


class _Accumulator:
    """One aggregate for many groups: `seen` values each, and what the function keeps."""

    def __init__(self, name: str, aggregate: Aggregate, schema: Schema) -> None:
        self.name, self.function = name, aggregate.function
        self.custom: Callable[[Any], Any] | None = different if self.function == "distinct" else aggregate.custom
        self.out: Type = aggregate.type_in(schema)
        input_kind: Type = aggregate.of.type_in(schema) if aggregate.of is not None else "int"
        # an array of NumPy's own texts has room for the longest in each place
        self._objects = input_kind in ("text", "any")
        self._dtypes: dict[str, Any] = {"seen": np.int64}
        for field in _FIELDS[self.function]:
            self._dtypes[field] = _dtype_of(self.function, field, input_kind)
        self.arrays = {name: np.zeros(0, dtype) for name, dtype in self._dtypes.items()}
        self.broken: list[tuple[int, str]] = []  #: rows of the last results that could not be computed
        #: No sum of whole numbers can be farther from zero than this. Beyond 64 bits they are kept in two parts: `total`,
        #: which wraps around, and `high`, the sum of the upper halves.
        self._reach = 0

    def empty(self) -> _Accumulator:
        other = object.__new__(_Accumulator)
        other.name, other.function, other.custom, other.out, other._dtypes = (
            self.name,
            self.function,
            self.custom,
            self.out,
            self._dtypes,
        )
        other._objects, other._reach = self._objects, 0
        other.arrays = {name: np.zeros(0, dtype) for name, dtype in self._dtypes.items()}
        other.broken = []
        return other

    def resize(self, capacity: int) -> None:
        for name, array in self.arrays.items():
            larger = np.zeros(capacity, array.dtype)
            larger[: len(array)] = array
            self.arrays[name] = larger

    def reset(self, slots: Array) -> None:
        for array in self.arrays.values():
            array[slots] = 0

    def update(self, slots: Array, column: Column | None, order: Array) -> None:
        a = self.arrays
        if column is None:
            np.add.at(a["seen"], slots, 1)
            return
        values: Any
        values, valid = parts(column)
        if valid is not None:
            slots, values, order = slots[valid], values[valid], order[valid]
        if isinstance(values, Text):
            values = column_of(values.tolist(), "any")
        if "order" in a:
            self._pick(slots, values, order)
        elif self.custom is not None:
            self._collect(slots, values, order)
        else:
            getattr(self, f"_{self.function}")(slots, values)
        np.add.at(a["seen"], slots, 1)

    def load(self, slots: Array, state: dict[str, Array]) -> None:
        if "high" in state:
            self._widen()
        elif self.arrays.get("total", _NONE).dtype == np.int64:
            if state["total"].dtype != np.int64:  # of a mean, from before its sum was kept exactly
                self.load(slots, {**state, **_halves(state["total"])})
                return
            self._extend(state["total"])
            if "high" in self.arrays:
                state = {**state, "high": state["total"] >> 32}
        elif "places" in self.arrays and "places" not in state:  # of a state from before they were kept
            state = {**state, "places": _unknown_places(state["value"])}
        for name, values in state.items():
            self.arrays[name][slots] = values

    def last_place(self, slots: Array) -> int:
        """Return the last place in the order of arrival that these groups know of, or -1."""
        if "order" in self.arrays:
            return int(self.arrays["order"][slots].max(initial=-1))
        if "places" in self.arrays:
            return max((max(places) for places in self.arrays["places"][slots] if places), default=-1)
        return -1

    def _sum(self, slots: Array, values: Array) -> None:
        total = self.arrays["total"]
        if total.dtype == np.int64:
            self._extend(values)
            if "high" in self.arrays:
                np.add.at(self.arrays["high"], slots, values >> 32)
        np.add.at(total, slots, values.astype(total.dtype, copy=False))  # of another type, tens of times slower

    _mean = _sum

    def _extend(self, values: Array) -> None:
        """Take note of how far sums may get by these values, before they do."""
        if len(values) and "high" not in self.arrays:
            self._reach += len(values) * max(int(values.max()), -int(values.min()))
            if self._reach > MOST:
                self._widen()

    def _widen(self) -> None:
        if "high" not in self.arrays:
            self.arrays["high"] = self.arrays["total"] >> 32

    def _std(self, slots: Array, values: Array) -> None:
        # sums of distances from the first value: no cancellation when the mean is large
        a = self.arrays
        new = a["seen"][slots] == 0
        a["shift"][slots[new][::-1]] = values[new][::-1]
        distance = values - a["shift"][slots]
        np.add.at(a["total"], slots, distance)
        np.add.at(a["squares"], slots, distance * distance)

    def _extreme(self, better: Any, slots: Array, values: Array) -> None:
        a = self.arrays
        new = a["seen"][slots] == 0
        a["value"][slots[new]] = values[new]
        better.at(a["value"], slots, values)

    def _min(self, slots: Array, values: Array) -> None:
        self._extreme(np.minimum, slots, values)

    def _max(self, slots: Array, values: Array) -> None:
        self._extreme(np.maximum, slots, values)

    def _pick(self, slots: Array, values: Array, order: Array) -> None:
        """Keep the first or the last value to arrive, with its place in the order of arrival."""
        if self.function == "first":
            new = self.arrays["seen"][slots] == 0
            slots, values, order = slots[new][::-1], values[new][::-1], order[new][::-1]
        self.arrays["value"][slots] = values  # of equal slots the last one given stays
        self.arrays["order"][slots] = order

    def _collect(self, slots: Array, values: Array, order: Array) -> None:
        lists, places = self.arrays["value"], self.arrays.get("places")
        for slot, value, place in zip(slots.tolist(), values.tolist(), order.tolist(), strict=True):
            items = lists[slot]
            if items:
                items.append(value)
                if places is not None:
                    places[slot].append(place)
            else:
                lists[slot] = [value]
                if places is not None:
                    places[slot] = [place]

    def merge(self, slots: Array, other: _Accumulator, other_slots: Array) -> None:
        seen = other.arrays["seen"][other_slots]
        some = seen > 0
        slots, other_slots, seen = slots[some], other_slots[some], seen[some]
        a, b = self.arrays, other.arrays
        had = a["seen"][slots] > 0
        if self.function in ("sum", "mean"):
            if a["total"].dtype == np.int64:
                self._merge_high(slots, other, other_slots)
            a["total"][slots] += b["total"][other_slots]
        elif self.function == "std":
            self._merge_std(slots, b, other_slots, seen, had)
        elif self.function in ("min", "max"):
            extreme = np.minimum if self.function == "min" else np.maximum
            current, incoming = a["value"][slots], b["value"][other_slots]
            a["value"][slots] = np.where(had, extreme(current, incoming), incoming)
        elif self.function in ("first", "last"):
            earlier = b["order"][other_slots] < a["order"][slots]
            better = ~had | (earlier if self.function == "first" else ~earlier)
            for field in ("value", "order"):
                a[field][slots[better]] = b[field][other_slots[better]]
        elif self.custom is not None:
            # one behind the other: results are put into the order of arrival
            for field in _FIELDS[self.function]:
                for slot, its_slot in zip(slots.tolist(), other_slots.tolist(), strict=True):
                    a[field][slot] = (a[field][slot] or []) + b[field][its_slot]
        a["seen"][slots] += seen

    def _merge_high(self, slots: Array, other: _Accumulator, other_slots: Array) -> None:
        self._reach += other._reach if other is not self else 0
        if self._reach > MOST or "high" in self.arrays or "high" in other.arrays:
            self._widen()
            high = other.arrays.get("high")
            self.arrays["high"][slots] += (
                other.arrays["total"][other_slots] >> 32 if high is None else high[other_slots]
            )

    def _merge_std(self, slots: Array, b: dict[str, Array], other_slots: Array, seen: Array, had: Array) -> None:
        a = self.arrays
        a["shift"][slots[~had]] = b["shift"][other_slots[~had]]
        offset = b["shift"][other_slots] - a["shift"][slots]
        total = b["total"][other_slots]
        a["squares"][slots] += b["squares"][other_slots] + 2 * offset * total + seen * offset * offset
        a["total"][slots] += total + seen * offset

    def _custom_result(self, row: int, values: Any, places: Any) -> Any:
        assert self.custom is not None
        try:
            if not values:
                return 0 if self.function == "distinct" else None
            if self._objects:
                array: Array = np.empty(len(values), object)
                array[:] = values
            else:
                array = np.array(values)
            if places is not None:
                array = array[np.argsort(places, kind="stable")]
            result = checked_value(self.custom(array), self.out, self.name)
            if isinstance(result, str) or (type(result) is int and result.bit_length() > 63):
                column_of([result], self.out, name=self.name)  # what fits no column is the fault of this window alone
            return result
        except Exception as error:
            self.broken.append((row, error_text(error)))
            return None

    def _too_far(self, total: Array, high: Array) -> Array:
        bad = beyond(total, high)
        self.broken += [(row, unfit(self.name)) for row in np.flatnonzero(bad).tolist()]
        return bad

    def results(self, slots: Array) -> Column:
        a = self.arrays
        seen = a["seen"][slots]
        if self.function == "count":
            return seen
        valid = seen > 0
        n = np.maximum(seen, 1)
        if self.custom is not None:
            places = a["places"][slots] if "places" in a else [None] * len(slots)
            groups = enumerate(zip(a["value"][slots], places, strict=True))
            return column_of([self._custom_result(i, *each) for i, each in groups], self.out, name=self.name)
        if self.function == "mean":
            total = a["total"][slots]
            values = (sum_of(total, a["high"][slots]) if "high" in a else total) / n
        elif self.function == "std":
            mean = a["total"][slots] / n
            values = np.sqrt(np.maximum(a["squares"][slots] / n - mean * mean, 0))
        else:
            values = a["total" if self.function == "sum" else "value"][slots]
        if "high" in a and self.function == "sum":
            valid = valid & ~self._too_far(values, a["high"][slots])
        if self.out == "text":
            text = Text.of([value if value else "" for value in values])
            return nullable(text, valid)
        if self.out != "any":
            values = values.astype(DTYPES[self.out], copy=False)
        return values if valid.all() else Nullable(values, valid)


def _upper(total: Array, high: Array) -> Array:
    """Return what sums have above their lower 32 bits, given what they wrapped to and the sums of their upper halves.

    The lower halves are never below zero, so their sum is exact for the first 2**31 values.
    """
    with np.errstate(over="ignore"):
        upper: Array = high + ((total - (high << 32)) >> 32)
    return upper


def beyond(total: Array, high: Array) -> Array:
    """Return which sums are outside 64 bits, given what they wrapped to and the sums of their upper halves."""
    upper = _upper(total, high)
    bad: Array = (upper < -(2**31)) | (upper >= 2**31)
    return bad


def sum_of(total: Array, high: Array) -> Array:
    """Return sums as floats, also those outside 64 bits, given the same as `beyond`."""
    floats: Array = _upper(total, high) * 2.0**32 + (total & (2**32 - 1))
    return floats


def _halves(sums: Array) -> dict[str, Array]:
    """Return whole sums that were kept as floats in two parts, the lower of which wraps around."""
    high = np.floor(sums / 2.0**32)
    low = (sums - high * 2.0**32).astype(np.int64)
    return {"total": (high.astype(np.int64) << 32) + low, "high": high.astype(np.int64)}


def _unknown_places(lists: Array) -> Array:
    """Return places before all that will come for values of which nobody knows theirs."""
    places = np.zeros(len(lists), object)
    for i, values in enumerate(lists):
        places[i] = [-1] * len(values) if values else 0
    return places


def different(values: Array) -> int:
    """Return how many different values there are: NaN is one of them, and lists and objects go by what is in them."""
    if values.dtype != object:
        nans = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
        return len(set(values.tolist())) - max(0, nans - 1)
    return len({value if isinstance(value, str) else _told_apart(value) for value in values})


def _told_apart(value: Any) -> Any:
    """Return something by which a value of any type can be told from others: numbers by what they are, all else as JSON."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if value == value else math.nan  # one NaN, which is itself
    return msgspec.json.encode(value, order="sorted")


def unfit(name: str) -> str:
    """Say why a sum is missing."""
    return f"{name!r}: the sum does not fit a whole number of 64 bits; cast to float before adding up"


def _dtype_of(function: str, field: str, kind: Type) -> Any:
    if field == "order":
        return np.int64
    if function in ("custom", "distinct") or kind in ("text", "any"):
        return object
    if function == "std" or field in ("shift", "squares") or (field == "total" and kind == "float32"):
        return np.float64
    return DTYPES[kind]
