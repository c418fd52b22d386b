"""Whether two systems gave the same results for the same messages, as far as results are determined."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater_bench.riot.datasets import CITY

#: Peers compute with 64-bit floats and the benchmark with 32-bit ones; errors are relative to a column's largest value.
_TOLERANCE = 2e-6
#: Which mean is the latest depends on how far the other branch of PRED has come: a batch of the engine, at most.
_APART = 8192

Results = list[list[Any]]


def read(path: Path) -> Results:
    """Read the results that a run was told to write, one JSON list to a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows_of(flow: str, results: Results) -> Results:
    """Return what a flow with a record for each observation gave as rows: a message's results of one kind in one of them."""
    if flow != "stats":
        return results  # ETL has put its records together itself
    rows: dict[tuple[int, str], list[Any]] = {}
    for number, sensor, which, kind, result in results:
        row = rows.setdefault((number, kind), [number, sensor, kind, *[None] * len(CITY.numbers)])
        row[3 + (CITY.numbers.index(which) if isinstance(which, str) else which)] = result
    return list(rows.values())


def differences(flow: str, messages: Sequence[bytes], ours: Results, theirs: Results) -> list[str]:
    """Return what differs, in words, at most ten of them; nothing when the results agree."""
    compare = {"etl": _etl, "stats": _stats, "pred": _pred}[flow]
    mismatches: list[str] = []
    for difference in compare(messages, ours, theirs):
        mismatches.append(difference)
        if len(mismatches) == 10:
            break
    return mismatches


def _keyed(results: Results, key: Callable[[list[Any]], Any]) -> dict[Any, list[Any]]:
    return {key(result): result for result in results}


def _paired(ours: dict[Any, Any], theirs: dict[Any, Any]) -> Iterable[str]:
    for key in ours.keys() ^ theirs.keys():
        yield f"result {key} came out of {'one' if key in ours else 'the other'} only"


def _etl(messages: Sequence[bytes], ours: Results, theirs: Results) -> Iterable[str]:
    a, b = (_keyed(results, lambda result: (result[0], len(result))) for results in (ours, theirs))
    yield from _paired(a, b)
    for key in a.keys() & b.keys():
        mine, other = (_flat(result) for result in (a[key], b[key]))
        if mine.keys() != other.keys() or not all(_same(mine[name], other[name]) for name in mine):
            yield f"message {key[0]}: {a[key]} and {b[key]}"


def _flat(result: list[Any]) -> dict[Any, Any]:
    if len(result) > 2:  # a row
        return dict(enumerate(result))
    message = json.loads(result[1])
    return {"bt": message["bt"], **{entry["n"]: entry.get("v", entry.get("sv")) for entry in message["e"]}}


def _same(one: Any, other: Any) -> bool:
    try:
        return abs(float(one) - float(other)) <= 1e-6 * max(abs(float(one)), abs(float(other)))
    except ValueError:
        return bool(one == other)


def _stats(messages: Sequence[bytes], ours: Results, theirs: Results) -> Iterable[str]:
    a, b = (_keyed(results, lambda result: (result[0], result[2])) for results in (ours, theirs))
    yield from _paired(a, b)
    settled = _settled(messages)
    for number, kind in a.keys() & b.keys():
        for k, (mine, other) in enumerate(zip(a[number, kind][3:], b[number, kind][3:], strict=True)):
            if kind == "SOM" and not settled[number, k]:
                continue  # a random value was replaced, by each its own
            x, y = (np.array([float(part) for part in text.split("#") if part]) for text in (mine, other))
            scale = _LARGEST[k] if kind == "SLR" else max(np.abs(x).max(), 1)
            if len(x) != len(y) or np.abs(x - y).max() > _TOLERANCE * scale:
                yield f"message {number}, {kind} of {CITY.numbers[k]}: {mine} and {other}"


_LARGEST = (100.0, 100.0, 10_000.0, 10_000.0, 1000.0)  #: values of each kind, about


def _settled(messages: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each message and kind whether its sensor has shown no more than ten distinct values so far."""
    by_place: dict[tuple[str, int], set[float]] = {}
    out = np.zeros((len(messages), 5), np.bool_)
    for number, (sensor, values) in enumerate(map(_values, messages)):
        for k, value in enumerate(values):
            distinct = by_place.setdefault((sensor, k), set())
            distinct.add(value)
            out[number, k] = len(distinct) <= 10
    return out


def _values(message: bytes) -> tuple[str, list[float]]:
    fields = {entry["n"]: entry.get("v", entry.get("sv")) for entry in json.loads(message)["e"]}
    return fields["source"], [float(fields[name]) for name in CITY.numbers]


def _pred(messages: Sequence[bytes], ours: Results, theirs: Results) -> Iterable[str]:
    from headwater_bench.riot import published_models

    a, b = (_keyed(results, lambda result: (result[0], result[2])) for results in (ours, theirs))
    yield from _paired(a, b)
    parsed = [_values(message) for message in messages]
    values = np.array([numbers for _, numbers in parsed]).T
    missed = values[4] - published_models.regression(CITY).predict(values[:4])
    places, means = _means([sensor for sensor, _ in parsed], values[4])
    for number, kind in a.keys() & b.keys():
        mine, other = a[number, kind], b[number, kind]
        if kind == "DTC":
            if mine[3:] != other[3:]:
                yield f"message {number}: class {mine[3:]} and {other[3:]}"
            continue
        near = means[np.abs(places - number) <= _APART]
        for result in (mine[3], other[3]):
            by_any = np.abs(missed[number] / near - result) <= 1e-4 * abs(result) + 1e-6
            if not by_any.any() and not (np.isinf(result) and number <= places[0] + _APART):
                yield f"message {number}: error {result} is {missed[number]:.6g} by no mean nearby"


def _means(sensors: Sequence[str], values: Any) -> tuple[Any, Any]:
    """Return which messages complete a mean of five values of their sensor, and the means."""
    open_: dict[str, list[float]] = {}
    places, means = [], []
    for number, (sensor, value) in enumerate(zip(sensors, values.tolist(), strict=True)):
        block = open_.setdefault(sensor, [])
        block.append(value)
        if len(block) == 5:
            places.append(number)
            means.append(sum(block) / 5)
            block.clear()
    return np.array(places), np.array(means)
