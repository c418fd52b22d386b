"""The 21 query configurations of Ghosh & Simmhan, table II: peak rates beside theirs, and what bounds cost and save.

Every query runs from its text. One thread takes batches of 8192 records through the query's operators; then the engine runs
the same flow. The number of results is checked before a rate is reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headwater import engine
from headwater.data.batch import END
from headwater.data.column import Array, Text
from headwater.flow import Batch, Flow, Schema
from headwater.io import Discard
from headwater.operators import Operator, build
from headwater_bench.experiments.plots import figure
from headwater_bench.experiments.prepared import Prepared
from headwater_bench.experiments.rows import write_rows

BATCH = 8192
_SCHEMA = Schema.of({"height": int})
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


def run(
    quick: bool = False, output: Path | None = None, *, records: int | None = None, only: list[str] | None = None
) -> dict[str, Any]:
    """Measure every configuration, then other shapes of patterns, what bounds do to them, and queries over many keys."""
    n = records or (400_000 if quick else 10_000_000)
    chosen = [config for config in configs() if not only or config.name in only]
    answer: dict[str, Any] = {"records": n, "batch": BATCH, "queries": {c.name: _measured(c, n) for c in chosen}}
    if not only:
        answer["shapes"] = _shapes(min(n, 2_000_000))
        answer["bounds"] = _bounds(min(n, 2_000_000))
        answer["keys"] = _keys(20_000 if quick else 100_000)
        answer["endless_keys"] = _endless_keys(200_000 if quick else 2_000_000)
    if output is not None:
        _write(answer, output)
    return answer


def _measured(config: Config, n: int) -> dict[str, Any]:
    _compile(config)
    results, tenths, work = _timed(_operators(config.query), config.values, n)
    least, most = config.results(n)
    if not least <= results <= most:
        raise AssertionError(f"{config.name}: {n} records gave {results} results, expected {least} to {most}")
    rate = n / sum(tenths)
    return {
        "rate": round(rate),
        "engine_rate": round(_engine_rate(config, min(n, 2_000_000))),
        "paper_pi": config.paper_pi,
        "paper_azure": config.paper_azure,
        "over_paper": round(rate / config.paper_azure, 1),
        "cpu_ns": round(1e9 * sum(work) / n, 2),
        "cpu_share": round(sum(work) / sum(tenths), 3),
        "selectivity": results / n,
        "last_over_first": round(work[0] / work[-1], 3) if work[-1] else 1.0,
    }


def _compile(config: Config) -> None:
    """Run a little of everything once, also what keeps memory small in the long run."""
    operators = _operators(config.query)
    _timed(operators, config.values, 2 * BATCH)
    for old, new in zip(operators, _operators(config.query), strict=True):
        if data := old.snapshot():
            new.restore(data)


def _flow(query: str, source: Any, **options: Any) -> Flow:
    flow = Flow("cep")
    flow.read("inStream", source)
    flow.query("query", query, **options).write("out", Discard())
    return flow


def _operators(query: str, **options: Any) -> list[Operator]:
    flow = _flow(query, Prepared([], _SCHEMA), **options)
    return [build(step) for step in flow.in_order() if not step.is_source and not step.is_sink]


def _timed(operators: list[Operator], values: Values, n: int) -> tuple[int, list[float], list[float]]:
    """Run records through operators; return the number of results, and of each tenth the seconds and the seconds of work.

    Growth is told from the thread's own work: other programs on the machine must not look like it.
    """
    results, tenths, work = 0, [], []
    for tenth in range(10):
        batches = list(_batches(values, tenth * n // 10, (tenth + 1) * n // 10))
        begin, began = time.perf_counter(), time.thread_time()
        for batch in batches:
            results += _through(operators, batch)
        tenths.append(time.perf_counter() - begin)
        work.append(time.thread_time() - began)
    return results, tenths, work


def _through(operators: list[Operator], batch: Batch) -> int:
    for operator in operators:
        out = operator.process(batch, 0)
        if not isinstance(out, Batch):
            return 0
        batch = out
    return batch.length


def _batches(values: Values, start: int, stop: int) -> Iterator[Batch]:
    for at in range(start, stop, BATCH):
        end = min(at + BATCH, stop)
        yield Batch({"height": values(at, end)}, end - at, np.zeros((end - at, 2), np.int64))


def _engine_rate(config: Config, n: int) -> float:
    """Return records per second through the engine with one worker, in turns of up to one batch."""
    flow = _flow(config.query, Prepared(list(_batches(config.values, 0, n)), _SCHEMA))
    begin = time.perf_counter()
    engine.run(flow, workers=1, take=BATCH, chunk=BATCH, queue_records=8 * BATCH)
    return n / (time.perf_counter() - begin)


# -- other shapes ---------------------------------------------------------------------------------------------------------

_SHAPES = {
    "count": "every e1=a<2:5> -> e2=a[x == e1[0].x] within 10 sec select e1[0].x as x, e2.x as y",
    "and": "every e1=a -> e2=a[x == e1.x] and e3=a[y > e1.y] within 10 sec select e1.x as x, e3.y as y",
    "or": "every e1=a -> e2=a[x == e1.x] or e3=a[x == e1.x + 1] within 10 sec select e1.x as x, e2.x as y",
    "absence": "every e1=a[x < 500] -> not a[x == e1.x + 500] for 1 sec select e1.x as x",
    "absence and": "every e1=a -> not a[x == e1.x + 1] and e2=a[x == e1.x] within 10 sec select e1.x as x",
    "group": "every (e1=a -> e2=a[x > e1.x] -> e3=a[x == e1.x]) within 10 sec select e1.x as x",
    "sequence of counts": "every e1=a[x < 500]+, e2=a[x >= 500] select e1[0].x as x, e1[last].x as y, e2.x as z",
}
_SHAPED = Schema.of({"x": int, "y": float, "t": "time"})


def _shapes(n: int) -> dict[str, Any]:
    """Measure counts, `and`, `or`, absence and groups over records of a thousand values, a thousandth of a second apart."""
    return {name: _shape(f"from {query}", n) for name, query in _SHAPES.items()}


def _shape(query: str, n: int) -> dict[str, Any]:
    operator: Any = _operator(query, "a", _SHAPED)
    for batch in _shaped(0, 2 * BATCH):
        _operator(query, "a", _SHAPED).process(batch, 0)
    results, work = 0, []
    for tenth in range(10):
        batches = list(_shaped(tenth * n // 10, (tenth + 1) * n // 10))
        began = time.thread_time()
        for batch in batches:
            out = operator.process(batch, 0)
            results += out.length if isinstance(out, Batch) else 0
        work.append(time.thread_time() - began)
    return {
        "records": n,
        "results": results,
        "rate": round(n / sum(work)),
        "last_over_first": round(work[0] / work[-1], 3),
        "partial_matches": operator.partial_matches,
        "state_mb": round(operator.nbytes / 1e6, 1),
    }


def _operator(query: str, streams: str, schema: Schema, **options: Any) -> Operator:
    """Return the operator of a query over streams of one letter each, with event time."""
    flow = Flow("cep")
    for name in streams:
        flow.read(f"read {name}", Prepared([], schema)).event_time(name, "t")
    flow.query("query", query, **options)
    return build(flow.steps["query"])


def _shaped(start: int, stop: int) -> Iterator[Batch]:
    for at in range(start, stop, BATCH):
        n = min(BATCH, stop - at)
        draw = np.random.default_rng(at)
        columns: dict[str, Any] = {
            "x": draw.integers(0, 1000, n), "y": draw.random(n), "t": (at + np.arange(n)) * 1000,
        }  # fmt: skip
        yield Batch(columns, n, np.zeros((n, 2), np.int64))


# -- bounds ---------------------------------------------------------------------------------------------------------------


def _bounds(n: int) -> dict[str, Any]:
    """Run the worst pattern with the default cap, with a `within`, and with neither."""
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "cap 100,000": (chain(3, "->"), {}),
        "within 50 sec": (chain(3, "->", " within 50 sec"), {"cap": 2**60}),
        "no bound": (chain(3, "->"), {"cap": 2**60}),
    }
    found = {}
    for name, (query, options) in cases.items():
        operator: Any = _operators(query, **options)[0]
        tenths = []
        for tenth in range(10):
            batches = list(_stamped(tenth * n // 10, (tenth + 1) * n // 10))
            begin = time.thread_time()
            for batch in batches:
                operator.process(batch, 0)
            tenths.append(time.thread_time() - begin)
        found[name] = {
            "records": n,
            "rate": round(n / sum(tenths)),
            "last_over_first": round(tenths[0] / tenths[-1], 3),
            "partial_matches": operator.partial_matches,
            "evicted": operator.evicted,
            "mb": round(operator.nbytes / 1e6, 1),
        }
    return found


def _stamped(start: int, stop: int) -> Iterator[Batch]:
    """Return batches of different values, created a thousandth of a second apart."""
    at = start
    for batch in _batches(different, start, stop):
        batch.stamps[:] = ((at + np.arange(batch.length)) * 1_000_000)[:, None]
        at += batch.length
        yield batch


# -- many keys ------------------------------------------------------------------------------------------------------------

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


def _keys(keys: int) -> dict[str, Any]:
    """Run a partitioned pattern, an absence and a join over so many keys; report rate and memory."""
    return {name: _keyed(query, keys) for name, query in _KEY_QUERIES.items()}


def _keyed(query: str, keys: int) -> dict[str, Any]:
    ports = 1 if query == _KEY_QUERIES["partition"] else 2
    # a first small run, so that compiled code does not count as state
    small: Any = _operator(query, "ab", _KEYED)
    for port in range(ports):
        small.process(_keyed_batch(0, 64, 0, port), port)
    again = _operator(query, "ab", _KEYED)
    again.restore(small.snapshot())
    again.advance(END)
    operator: Any = _operator(query, "ab", _KEYED, cap=10 * keys)
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


def _endless_keys(keys: int) -> dict[str, Any]:
    """Let keys come and go, two records each, 100,000 new ones per second: those that hold nothing are forgotten."""
    operator: Any = _operator(_PASSING, "a", _KEYED)
    results, seconds, state = 0, 0.0, []
    for start in range(0, keys, BATCH):
        stop = min(start + BATCH, keys)
        for turn in range(2):
            batch = _keyed_batch(start, stop, turn, 0)
            batch.columns["t"] = (2 * np.arange(start, stop) + turn) * 5
            begin = time.perf_counter()
            out = operator.process(batch, 0)
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


# -- showing --------------------------------------------------------------------------------------------------------------


def table(answer: dict[str, Any]) -> str:
    """Show an answer as text."""
    names = f"{'rate/s':>12} {'engine/s':>12} {'Azure/s':>9} {'over it':>9} {'Pi/s':>9} {'selectivity':>12}"
    head = f"{'query':10} {names} {'last/first':>10}"
    lines = [
        f"{answer['records']:,} records per query, batches of {answer['batch']}; Azure/s and Pi/s are Siddhi's in the "
        "paper, on its machines: what is over them is over slower machines too",
        head,
    ]
    for name, row in answer["queries"].items():
        lines.append(
            f"{name:10} {row['rate']:>12,} {row['engine_rate']:>12,} {row['paper_azure']:>9,} {row['over_paper']:>9,.1f} "
            f"{row['paper_pi']:>9,} {row['selectivity']:>12.5f} {row['last_over_first']:>10.2f}"
        )
    for name, row in answer.get("shapes", {}).items():
        lines.append(
            f"{name}: {row['rate']:,}/s, last/first {row['last_over_first']:.2f}, {row['results']:,} results, "
            f"{row['partial_matches']:,} partial matches, {row['state_mb']} MB"
        )
    for name, row in answer.get("bounds", {}).items():
        lines.append(
            f"Pat3 0.0, {name}: {row['rate']:,}/s, last/first {row['last_over_first']:.2f}, "
            f"{row['partial_matches']:,} partial matches, {row['mb']} MB"
        )
    for name, row in answer.get("keys", {}).items():
        lines.append(
            f"{name} over {row['keys']:,} keys: {row['rate']:,}/s, state {row['state_mb']} MB of {row['bound_mb']:.0f} MB, "
            f"process grown by {row['grown_mb']} MB"
        )
    if "endless_keys" in answer:
        row = answer["endless_keys"]
        lines.append(
            f"{row['keys']:,} keys that come and go: {row['rate']:,}/s, state at most {row['state_mb']} MB "
            f"({row['state_mb_first_half']} MB in the first half), {row['forgotten_keys']:,} keys forgotten"
        )
    return "\n".join(lines)


def _write(answer: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    write_rows([{"query": name, **row} for name, row in answer["queries"].items()], output / "cep.csv")
    (output / "cep.txt").write_text(table(answer) + "\n")
    _draw(answer["queries"], output / "cep.png")


def _draw(queries: dict[str, Any], path: Path) -> None:
    """Draw the paper's figure 1: peak rates of all queries, here and on its two machines."""
    fig, axes = figure(1, 1, 11, 4.2)
    places, third = np.arange(len(queries)), 0.27
    series = (
        ("rate", "here, one core", "#1f77b4"),
        ("paper_azure", "paper, Azure D2", "#9aa5b1"),
        ("paper_pi", "paper, Pi 2", "#e0a100"),
    )
    for at, (key, label, colour) in enumerate(series):
        axes[0][0].bar(
            places + (at - 1) * third, [row[key] for row in queries.values()], third, color=colour, label=label
        )
    axes[0][0].set_xticks(places, list(queries), rotation=60, fontsize=8)
    axes[0][0].set(
        yscale="log", ylabel="records/s", title="figure 1: peak rates; Siddhi on the paper's machines, ours on this one"
    )
    axes[0][0].legend(fontsize=8)
    fig.savefig(path, dpi=110)
