"""Every RIoTBench task, one record at a time, slow and plain: what the compiled kernels are compared with."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict, deque
from fractions import Fraction
from typing import Any

import numpy as np


def senml(raw: bytes, fields: dict[str, str]) -> tuple[int, dict[str, float | str]] | None:
    """Return base time and values of a message, or None when it is not one."""
    try:
        document = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
        time_ms = _whole(document["bt"])
        names = [entry["n"] for entry in document["e"]]
        values = {entry["n"]: _first(entry.get("v"), entry.get("sv")) for entry in document["e"]}
        if not isinstance(document["e"], list) or any(type(name) is not str for name in names):
            return None
        if any(names.count(name) != 1 for name in fields):
            return None
        return time_ms, {name: _typed(values[name], kind) for name, kind in fields.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _first(v: Any, sv: Any) -> Any:
    return sv if v is None else v


def _whole(value: Any) -> int:
    if type(value) not in (int, str) or abs(int(value)) > 2**63 // 1000 - 1:
        raise ValueError(value)
    return int(value)


def _typed(value: Any, kind: str) -> float | str:
    if type(value) not in (str, int, float):
        raise TypeError(value)
    if kind == "text":
        text = value if isinstance(value, str) else json.dumps(value)
        text.encode("utf-8")  # raises for half of a surrogate pair
        return text
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def is_inside(value: float, low: float, high: float) -> bool:
    """Range filter: the borders are inside."""
    return not (f32(value) < f32(low) or f32(value) > f32(high))


class Interpolation:
    """State per key: the last valid values."""

    def __init__(self, window: int) -> None:
        self.last: dict[Any, deque[float]] = defaultdict(lambda: deque(maxlen=window))

    def step(self, key: Any, value: float | None) -> float:
        if value is not None:
            self.last[key].append(f32(value))
            return f32(value)
        stored = self.last[key]
        return f32(sum(stored) / len(stored)) if stored else 0.0


class Kalman:
    def __init__(self, q: float, r: float, p: float) -> None:
        self.q, self.r = np.float32(q), np.float32(r)
        self.x: dict[Any, Any] = defaultdict(lambda: np.float32(0))
        self.p: dict[Any, Any] = defaultdict(lambda: np.float32(p))

    def step(self, key: Any, z: float) -> float:
        p1 = self.p[key] + self.q
        gain = p1 / (p1 + self.r)
        self.x[key] = self.x[key] + gain * (np.float32(z) - self.x[key])
        self.p[key] = (np.float32(1) - gain) * p1
        return float(self.x[key])


class SlidingRegression:
    def __init__(self, window: int, horizon: int) -> None:
        self.window, self.horizon = window, horizon
        self.seen: dict[Any, list[float]] = defaultdict(list)

    def step(self, key: Any, value: float) -> list[float] | None:
        seen = self.seen[key]
        seen.append(value)
        if len(seen) <= self.window:
            return None
        xs = [Fraction(x) for x in range(len(seen) - self.window + 1, len(seen) + 1)]
        ys = [Fraction(y) for y in seen[-self.window :]]
        mean_x, mean_y = sum(xs) / self.window, sum(ys) / self.window
        slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
        slope /= sum((x - mean_x) ** 2 for x in xs)
        ahead = range(len(seen) + 1, len(seen) + 1 + self.horizon)
        return [float(mean_y + slope * (x - mean_x)) for x in ahead]


class SecondMoment:
    """Says nothing once all places are taken: the benchmark then replaces a random item."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.counts: dict[Any, Counter[float]] = defaultdict(Counter)

    def step(self, key: Any, value: float) -> float | None:
        counts = self.counts[key]
        counts[value] += 1
        if len(counts) > self.places:
            return None
        free = self.places - len(counts)
        total = sum(2 * f - 1 for f in counts.values()) - free
        return counts.total() * total / len(counts)


class DistinctCount:
    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.ranks: dict[Any, list[int]] = defaultdict(lambda: [0] * 2**bits)

    def step(self, sketch: Any, item: str) -> int:
        ranks = self.ranks[sketch]
        head = int.from_bytes(hashlib.sha1(item.encode()).digest()[:4], "little", signed=True)
        bucket, rest = head % 2**self.bits, head >> self.bits
        rank = 31 if rest == 0 else next(i for i in range(32) if rest >> i & 1)
        ranks[bucket] = max(ranks[bucket], rank)
        return int(0.79402 * len(ranks) * 2 ** (sum(ranks) / len(ranks)))


class BlockAverage:
    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks: dict[Any, list[float]] = defaultdict(list)

    def step(self, key: Any, value: float) -> float | None:
        block = self.blocks[key]
        block.append(value)
        if len(block) < self.size:
            return None
        del self.blocks[key]
        return sum(block) / self.size


class ErrorEstimate:
    def __init__(self) -> None:
        self.average = 0.0

    def average_is(self, value: float) -> None:
        self.average = value

    def error_of(self, measured: float, predicted: float) -> float:
        error = measured - predicted
        if self.average:
            return error / self.average
        return math.nan if error == 0 else math.copysign(math.inf, error)


class Join:
    def __init__(self, fields: int) -> None:
        self.fields = fields
        self.open: dict[int, dict[int, float]] = {}

    def step(self, message: int, field: int, value: float) -> list[float] | None:
        pieces = self.open.setdefault(message, {})
        pieces[field] = value
        if len(pieces) < self.fields:
            return None
        del self.open[message]
        return [pieces[i] for i in range(self.fields)]


def classify(tree: dict[str, Any], row: list[float]) -> int:
    """Follow a tree of the form of weka_models.json."""
    while "class_index" not in tree:
        tree = tree["le"] if row[tree["attr_index"]] <= tree["threshold"] else tree["gt"]
    return int(tree["class_index"])


def f32(value: float) -> float:
    return float(np.float32(value))
