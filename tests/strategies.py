"""Generated flows, records and options for property tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from headwater import Count, Flow, Stream, agg, col, io
from headwater.engine.policy import POLICIES

RECORD = {"n": int, "key": str, "x": float}

records = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", "c", "d"]),
            "x": st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 2)),
        }
    ),
    max_size=120,
).map(lambda rows: [{"n": i, **row} for i, row in enumerate(rows)])

options = st.fixed_dictionaries(
    {
        "on": st.sampled_from(["engine", "threads"]),
        "policy": st.sampled_from(sorted(POLICIES)),
        "take": st.sampled_from(["all", "half", 1, 3, 50]),
        "workers": st.integers(1, 4),
        "queue_records": st.sampled_from([1, 2, 7, 50, 10_000]),
        "chunk": st.sampled_from([1, 4, 256]),
    }
)


@dataclass
class Made:
    """A generated flow and the sinks it writes to."""

    flow: Flow
    sinks: dict[str, io.Collect] = field(default_factory=dict)


def numbered(state: Any, record: dict[str, Any]) -> Any:
    """Number the records of a key: tells loss, doubling and disorder apart."""
    seen = (state or 0) + 1
    return seen, {**record, "x": float(seen)}


def tripled(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [record] * (record["n"] % 3)


def shifted(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "x": record["x"] + 1}


@st.composite
def flows(draw: st.DrawFn) -> Any:
    """Draw the plan of a flow: a list of (verb, which stream, instances); building it is a function of the records."""
    verbs = ["filter", "with", "map", "flat_map", "split", "union", "process", "window", "to_all", "to_one"]
    return draw(
        st.lists(st.tuples(st.sampled_from(verbs), st.integers(0, 100), st.integers(1, 3)), min_size=1, max_size=8)
    )


def build(plan: list[tuple[str, int, int]], rows: list[dict[str, Any]], sources: int = 1) -> Made:
    """Build the flow of a plan; every stream that nothing reads is written to a sink of its own."""
    made = Made(Flow("generated"))
    ends: list[Stream] = [made.flow.read(f"source {i}", io.Items(rows[i::sources], RECORD)) for i in range(sources)]
    for number, (verb, which, parallel) in enumerate(plan):
        at = which % len(ends)
        stream = ends.pop(at)
        ends += _grown(verb, f"{verb} {number}", stream, ends, parallel)
    for i, end in enumerate(ends):
        made.sinks[f"sink {i}"] = sink = io.Collect()
        end.write(f"sink {i}", sink)
    return made


def _grown(verb: str, name: str, stream: Stream, others: list[Stream], parallel: int) -> list[Stream]:
    match verb:
        case "filter":
            return [stream.filter(name, col.x > -50, parallel=parallel)]
        case "with":
            return [stream.with_columns(name, x=col.x * 2, parallel=parallel)]
        case "map":
            return [stream.map(name, shifted, parallel=parallel)]
        case "flat_map":
            return [stream.flat_map(name, tripled, parallel=parallel)]
        case "split":
            return list(stream.split(name, col.n % 2 == 0, parallel=parallel))
        case "union":
            return [stream.union(name, others.pop(), parallel=parallel)] if others else [stream]
        case "process":
            return [stream.key_by("key").process(name, numbered, parallel=parallel)]
        case "window":
            window = stream.key_by("key").window(name, Count(3), n=agg.last("n"), x=agg.sum("x"), parallel=parallel)
            return [window.select(f"{name} columns", "n", "key", "x")]
        case "to_all":
            return [stream.to_all().filter(name, col.n >= 0, parallel=parallel)]
        case "to_one":
            return [stream.to_one().filter(name, col.n >= 0, parallel=parallel)]
    raise AssertionError(verb)
