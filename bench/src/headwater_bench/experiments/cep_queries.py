"""The 21 query configurations of Ghosh & Simmhan, table II: texts, inputs, and how many results each must have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from headwater.data.column import Array
from headwater.flow import Flow, Schema
from headwater.operators import Operator, build
from headwater_bench.experiments.batch_source import BatchSource

BATCH = 8192
Values = Callable[[int, int], Array]  #: the values of records start … stop - 1


@dataclass(frozen=True)
class Config:
    """One row of the table: a query, its input, the selectivity it must have, and the paper's peak rates."""

    name: str
    query: str
    values: Values
    results: Callable[[int], tuple[int, int]]  #: least and most results of so many records
    paper_pi: int
    paper_azure: int


def different(start: int, stop: int) -> Array:
    """Return whole numbers in no order that never repeat within 2^31 records."""
    return (np.arange(start, stop) * 1103515245 + 12345) % 2**31 + 1000


def _equal(start: int, stop: int) -> Array:
    return np.full(stop - start, 10)


def _runs(length: int) -> Values:
    """Return runs of so many equal numbers, each followed by a different one."""

    def values(start: int, stop: int) -> Array:
        at = np.arange(start, stop)
        last = at % (length + 1) == length
        return np.where(last, different(start, stop), at // (length + 1) % 2)

    return values


def _interleaved(start: int, stop: int) -> Array:
    """Return one value at every second place, and different ones between."""
    return np.where(np.arange(start, stop) % 2 == 0, 3, different(start, stop))


def _uniform(low: int, high: int) -> Values:
    def values(start: int, stop: int) -> Array:
        return np.random.default_rng(start).integers(low, high, stop - start)

    return values


def chain(length: int, sign: str, end: str = "") -> str:
    """Return the paper's query for so many equal records, in sequence (`,`) or as a pattern (`->`)."""
    events = [f"e{i}" for i in range(1, length + 1)]
    parts = ["every e1 = inStream"]
    parts += [f"{b} = inStream[{a}.height == {b}.height]" for a, b in pairwise(events)]
    selected = ", ".join(f"{e}.height as hi{i}" for i, e in enumerate(events, 1))
    return f"from {f' {sign} '.join(parts)}{end} select {selected} insert into outputStream"


def _exactly(count: Callable[[int], int]) -> Callable[[int], tuple[int, int]]:
    return lambda n: (count(n), count(n))


def _about_half(n: int) -> tuple[int, int]:
    spread = int(5 * (n / 4) ** 0.5)  # five standard deviations of n throws of a coin
    return n // 2 - spread, n // 2 + spread


def _in_runs(length: int, equal: int) -> Callable[[int], int]:
    """Return how many times `length` equal records follow each other in runs of `equal` and one more."""

    def count(n: int) -> int:
        whole, rest = divmod(n, equal + 1)
        return whole * (equal - length + 1) + max(0, min(rest, equal) - length + 1)

    return count


_FILTER = "define stream inStream (height int); from inStream[height < 150] select height insert into outputStream"
_ALL: Callable[[int], int] = lambda n: n  # noqa: E731
_NONE: Callable[[int], int] = lambda n: 0  # noqa: E731


def _chains(kind: str, sign: str, length: int, rates: tuple[tuple[int, int], ...]) -> Iterator[Config]:
    half: tuple[Values, Callable[[int], int]]
    if sign == ",":
        half = (_runs(2 * length - 1), _in_runs(length, 2 * length - 1))
    else:
        half = (_interleaved, lambda n: max(0, (n + 1) // 2 - length + 1))
    inputs = {"1.0": (_equal, lambda n: max(0, n - length + 1)), "0.5": half, "0.0": (different, _NONE)}
    for (selectivity, (values, count)), (pi, azure) in zip(inputs.items(), rates, strict=True):
        yield Config(f"{kind}{length} {selectivity}", chain(length, sign), values, _exactly(count), pi, azure)


def _aggregates(kind: str, window: str, rates: dict[int, tuple[int, int]]) -> Iterator[Config]:
    for size, (pi, azure) in rates.items():
        query = f"from inStream #window.{window}({size}) select avg(height) as AvgHeight insert into outputStream"
        count: Callable[[int], int] = _ALL if window == "length" else lambda n, size=size: n // size  # type: ignore[misc]
        yield Config(f"{kind} {size}", query, _uniform(0, 300), _exactly(count), pi, azure)


def configs() -> list[Config]:
    """Return the 21 configurations."""
    return [
        Config("Fil 1.0", _FILTER, _uniform(0, 150), _exactly(_ALL), 86_971, 321_413),
        Config("Fil 0.5", _FILTER, _uniform(0, 300), _about_half, 117_150, 385_952),
        Config("Fil 0.0", _FILTER, _uniform(150, 300), _exactly(_NONE), 204_633, 529_803),
        *_chains("Seq", ",", 3, ((33_958, 248_896), (43_470, 263_332), (62_347, 352_617))),
        *_chains("Seq", ",", 5, ((22_693, 190_257), (31_945, 224_290), (45_304, 314_746))),
        *_chains("Pat", "->", 3, ((34_198, 238_017), (75, 311), (53, 237))),
        *_chains("Pat", "->", 5, ((23_106, 190_590), (74, 311), (52, 235))),
        *_aggregates(
            "AggB", "lengthBatch", {60: (107_665, 334_008), 600: (113_092, 331_137), 6000: (110_991, 332_177)}
        ),
        *_aggregates("AggS", "length", {60: (55_130, 236_521), 600: (56_074, 225_908), 6000: (52_486, 230_313)}),
    ]


def operator_of(query: str, streams: str, schema: Schema, **options: Any) -> Operator:
    """Return the operator of a query over streams of one letter each, with event time."""
    flow = Flow("cep")
    for name in streams:
        flow.read(f"read {name}", BatchSource([], schema)).event_time(name, "t")
    flow.query("query", query, **options)
    return build(flow.steps["query"])
