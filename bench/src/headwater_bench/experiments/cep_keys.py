"""Queries over many keys: their rate, and what they may take of memory, also where keys come and go without end."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from headwater.data.batch import END
from headwater.data.column import Text
from headwater.flow import Batch, Schema
from headwater_bench.experiments.cep_queries import BATCH, operator_of

_KEYED = Schema.of({"key": str, "x": int, "t": "time"})
_KEY_QUERIES = {
    "partition": "partition with (key of a) begin from every e1=a -> e2=a[x > e1.x] -> e3=a[x == e1.x] within 1 hour "
    "select e1.key as key, e1.x as x, e3.x as y end",
    "absence": "partition with (key of a, key of b) begin from every e1=a -> not b[x == 2] for 1 min "
    "select e1.key as key end",
    "join": "from a#window.time(1 min) as a join b#window.time(1 min) as b on a.key == b.key "
    "select a.key as key, b.x as x",
}
#: what each query may add to the process: 3 kB per key, with some records of each, and room to grow
BYTES_PER_KEY, BYTES_AT_FIRST = 3_000, 50_000_000


def bound_mb(keys: int) -> float:
    """Return the memory that a query over so many keys may take."""
    return (BYTES_AT_FIRST + keys * BYTES_PER_KEY) / 1e6


def over_keys(keys: int) -> dict[str, Any]:
    """Run a partitioned pattern, an absence and a join over so many keys; report rate and memory."""
    return {name: _keyed(query, keys) for name, query in _KEY_QUERIES.items()}


def _keyed(query: str, keys: int) -> dict[str, Any]:
    ports = 1 if query == _KEY_QUERIES["partition"] else 2
    # a first small run, so that compiled code does not count as state
    small: Any = operator_of(query, "ab", _KEYED)
    for port in range(ports):
        small.process(_keyed_batch(0, 64, 0, port), port)
    again = operator_of(query, "ab", _KEYED)
    again.restore(small.snapshot())
    again.advance(END)
    operator: Any = operator_of(query, "ab", _KEYED, cap=10 * keys)
    before = _resident_mb()
    results, records, seconds, most, state = 0, 0, 0.0, before, 0
    for turn in range(3):
        for start in range(0, keys, BATCH):
            for port in range(ports):
                batch = _keyed_batch(start, min(start + BATCH, keys), turn, port)
                begin = time.perf_counter()
                out = operator.process(batch, port)
                moved = operator.advance(int(batch.columns["t"][-1]) - 1)  # type: ignore[arg-type]
                seconds += time.perf_counter() - begin
                records += batch.length
                results += sum(b.length for b in (out, moved) if isinstance(b, Batch))
                most, state = max(most, _resident_mb()), max(state, operator.nbytes)
    last = operator.advance(END)
    results += last.length if isinstance(last, Batch) else 0
    grown, bound = max(0.0, most - before), bound_mb(keys)
    return {
        "keys": keys,
        "records": records,
        "results": results,
        "rate": round(records / seconds),
        "grown_mb": round(grown, 1),
        "state_mb": round(state / 1e6, 1),
        "bound_mb": bound,
        "within_bound": max(state / 1e6, grown) <= bound,
    }


_PASSING = (
    "partition with (key of a) begin from every e1=a -> e2=a[x > e1.x] within 1 sec select e1.key as key, e2.x as x end"
)


def endless_keys(keys: int) -> dict[str, Any]:
    """Let keys come and go, two records each, 100,000 new ones per second: those that hold nothing are forgotten."""
    operator: Any = operator_of(_PASSING, "a", _KEYED)
    results, seconds, state = 0, 0.0, []
    for start in range(0, keys, BATCH):
        stop = min(start + BATCH, keys)
        for turn in range(2):
            batch = _keyed_batch(start, stop, turn, 0)
            batch.columns["t"] = (2 * np.arange(start, stop) + turn) * 5
            begin = time.perf_counter()
            out = operator.process(batch, 0)
            operator.advance((2 * stop - 2 + turn) * 5)  # its time is ahead of no other
            seconds += time.perf_counter() - begin
            results += out.length if isinstance(out, Batch) else 0
        state.append(operator.nbytes)
    return {
        "keys": keys,
        "results": results,
        "rate": round(2 * keys / seconds),
        "forgotten_keys": operator.idle_keys.forgotten,
        "state_mb": round(max(state) / 1e6, 1),
        "state_mb_first_half": round(max(state[: max(1, len(state) // 2)]) / 1e6, 1),
    }


def _resident_mb() -> float:
    """Return the memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _keyed_batch(start: int, stop: int, turn: int, port: int) -> Batch:
    n = stop - start
    times = (turn * 30_000_000 + np.arange(start, stop) * 100) + port
    columns: dict[str, Any] = {
        "key": Text.of([f"sensor-{i}" for i in range(start, stop)]),
        "x": np.full(n, turn % 2),
        "t": times,
    }
    return Batch(columns, n, np.zeros((n, 2), np.int64))
