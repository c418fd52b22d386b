"""The 21 query configurations of Ghosh & Simmhan, table II: peak rates beside theirs, and what bounds cost and save.

Every query runs from its text. One thread takes batches of 8192 records through the query's operators; then the engine runs
the same flow. The number of results is checked before a rate is reported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headwater import engine
from headwater.flow import Batch, Flow, Schema
from headwater.io import Discard
from headwater.operators import Operator, build
from headwater_bench.experiments.batch_source import BatchSource
from headwater_bench.experiments.cep_keys import endless_keys, over_keys
from headwater_bench.experiments.cep_queries import BATCH, Config, Values, chain, configs, different, operator_of
from headwater_bench.experiments.plots import figure
from headwater_bench.experiments.rows import write_rows

_SCHEMA = Schema.of({"height": int})


def run(
    quick: bool = False, output: Path | None = None, *, records: int | None = None, only: list[str] | None = None
) -> dict[str, Any]:
    """Measure every configuration, then other shapes of patterns, what bounds do to them, and queries over many keys."""
    n = records or (400_000 if quick else 10_000_000)
    cases = [config for config in configs() if not only or config.name in only]
    answer: dict[str, Any] = {"records": n, "batch": BATCH, "queries": {c.name: _measured(c, n) for c in cases}}
    if not only:
        answer["shapes"] = _shapes(min(n, 2_000_000))
        answer["bounds"] = _bounds(min(n, 2_000_000))
        answer["keys"] = over_keys(20_000 if quick else 100_000)
        answer["endless_keys"] = endless_keys(200_000 if quick else 2_000_000)
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
    flow = _flow(query, BatchSource([], _SCHEMA), **options)
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
    """Return records per second through the engine with one worker, in activations of up to one batch."""
    flow = _flow(config.query, BatchSource(list(_batches(config.values, 0, n)), _SCHEMA))
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
    operator: Any = operator_of(query, "a", _SHAPED)
    for batch in _shaped(0, 2 * BATCH):
        operator_of(query, "a", _SHAPED).process(batch, 0)
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
    figures = {}
    for name, (query, options) in cases.items():
        operator: Any = _operators(query, **options)[0]
        tenths = []
        for tenth in range(10):
            batches = list(_stamped(tenth * n // 10, (tenth + 1) * n // 10))
            begin = time.thread_time()
            for batch in batches:
                operator.process(batch, 0)
            tenths.append(time.thread_time() - begin)
        figures[name] = {
            "records": n,
            "rate": round(n / sum(tenths)),
            "last_over_first": round(tenths[0] / tenths[-1], 3),
            "partial_matches": operator.partial_matches,
            "evicted": operator.evicted,
            "mb": round(operator.nbytes / 1e6, 1),
        }
    return figures


def _stamped(start: int, stop: int) -> Iterator[Batch]:
    """Return batches of different values, created a thousandth of a second apart."""
    at = start
    for batch in _batches(different, start, stop):
        batch.stamps[:] = ((at + np.arange(batch.length)) * 1_000_000)[:, None]
        at += batch.length
        yield batch


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
