"""Generated flows for experiments: chains, diamonds and fan-outs of steps whose costs differ by two orders of magnitude."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np

from headwater.data.batch import Batch
from headwater.flow import Flow, Stream
from headwater.flow.endpoints import Source
from headwater.io import Discard
from headwater.operators import Operator, Output

#: A worker's own cost per step and record is about this; costs are drawn well above it.
LEAST_COST_S, MOST_COST_S = 0.1e-6, 10e-6


@cache
def rounds_per_second() -> float:
    """Measure how many rounds of busy work this machine does in a second; the best of several tries."""
    from headwater_bench.experiments.work import spin

    values = np.arange(64)
    spin(values, 10)
    best = 0.0
    for _ in range(20):
        start = time.perf_counter()
        spin(values, 2000)
        best = max(best, 64 * 2000 / (time.perf_counter() - start))
    return best


class Work(Operator):
    """Computes for a set time per record, without the GIL, and passes the records on."""

    def __init__(self, cost_s: float) -> None:
        from headwater_bench.experiments.work import spin

        self.cost_s = cost_s
        self._spin, self._rounds = spin, max(1, round(cost_s * rounds_per_second()))

    def process(self, batch: Batch, port: int) -> Output:
        """Work, then return the batch."""
        self._spin(batch["n"], self._rounds)
        return batch


@dataclass(frozen=True, slots=True)
class Topology:
    """A shape and the cost of each of its steps, in seconds per record."""

    name: str
    shape: str
    costs_s: tuple[float, ...]

    def flow(self, source: Source) -> Flow:
        """Build the flow over a source of records with a number `n`."""
        flow = Flow(self.name)
        start = flow.read("source", source)
        _SHAPES[self.shape](start, self.costs_s)
        return flow

    def capacity_hz(self, cores: int) -> float:
        """Return the input rate that takes all of `cores`, scheduling not counted."""
        return cores / sum(self.costs_s)

    def copies_out(self) -> int:
        """Return how many records reach the sinks for each that comes in."""
        return _COPIES[self.shape]


def _chain(stream: Stream, costs_s: tuple[float, ...]) -> None:
    for i, cost_s in enumerate(costs_s):
        stream = stream.apply(f"step {i}", _maker(cost_s))
    stream.write("sink", Discard())


def _diamond(stream: Stream, costs_s: tuple[float, ...]) -> None:
    """Halve the steps between two branches, after a first and before a last step that both share."""
    first, *inner, last = costs_s
    head = stream.apply("step 0", _maker(first))
    middle = len(inner) // 2
    ends = []
    for branch, costs in enumerate((inner[:middle], inner[middle:])):
        end = head
        for i, cost_s in enumerate(costs):
            end = end.apply(f"branch {branch} step {i}", _maker(cost_s))
        ends.append(end)
    # each branch carries all records, so the last step sees every record twice at half its cost
    ends[0].union("meet", ends[1]).apply("last", _maker(last / 2)).write("sink", Discard())


def _fan_out(stream: Stream, costs_s: tuple[float, ...]) -> None:
    """Feed four branches from one step, each with a sink of its own."""
    head = stream.apply("step 0", _maker(costs_s[0]))
    for branch in range(4):
        end = head
        for i, cost_s in enumerate(costs_s[1 + branch :: 4]):
            end = end.apply(f"branch {branch} step {i}", _maker(cost_s))
        end.write(f"sink {branch}", Discard())


def _maker(cost_s: float) -> Callable[[], Work]:
    def work() -> Work:
        return Work(cost_s)

    return work


_SHAPES = {"chain": _chain, "diamond": _diamond, "fan-out": _fan_out}
_COPIES = {"chain": 1, "diamond": 2, "fan-out": 4}


def topologies(sizes: tuple[int, ...] = (10, 20, 40), seed: int = 1) -> list[Topology]:
    """Return one topology of each shape and size, with costs drawn over two orders of magnitude."""
    random = Random(seed)
    result = []
    for size in sizes:
        for shape in _SHAPES:
            ratio = MOST_COST_S / LEAST_COST_S
            costs = tuple(LEAST_COST_S * ratio ** random.random() for _ in range(size))
            result.append(Topology(f"{shape} of {size}", shape, costs))
    return result
