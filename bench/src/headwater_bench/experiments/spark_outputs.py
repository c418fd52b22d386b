"""What flows on Spark and handwritten programs have written, read back and compared, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: which columns tell results apart
KEYS = {"etl": ("msg",), "stats": ("msg", "source", "obs", "kind"), "pred": ("msg", "source", "kind")}
_INFINITE = re.compile(rb'"-?(?:Infinity|NaN)"')
#: of the averages that an error is told in units of: what the generated sensors measure
_LEAST, _MOST = 4.0, 970.0
_MANY = 1000  #: errors of which the one in the middle is told in units of an average like that of the other side


def written(flow: str, folder: Path) -> pa.Table:
    """Return all results in a folder of files of JSON, an object to a line, or of Parquet."""
    import pyarrow.json as pj
    import pyarrow.parquet as pq

    paths = [path for path in sorted(folder.glob("*")) if path.name[0] not in "._" and path.stat().st_size]
    kinds = {"msg": pa.int64(), "result": pa.float32() if flow == "pred" else pa.string()}
    options = pj.ParseOptions(explicit_schema=pa.schema(kinds))
    sizes = pj.ReadOptions(block_size=2**24)
    tables = [
        pq.read_table(f)
        if f.suffix == ".parquet"
        # what is no number in JSON, Spark writes as text, and we as null
        else pj.read_json(pa.BufferReader(_INFINITE.sub(b"null", f.read_bytes())), sizes, options)
        for f in paths
    ]
    names = sorted(tables[0].column_names) if tables else []
    return pa.concat_tables([table.select(names) for table in tables]) if tables else pa.table({})


def differences(flow: str, ours: pa.Table, theirs: pa.Table) -> list[str]:
    """Say where results differ; both have the columns that a flow publishes, in any order of rows."""
    if not ours.num_rows:
        return ["we have no results at all"]
    if ours.num_rows != theirs.num_rows:
        return [f"{ours.num_rows:,} and {theirs.num_rows:,} results"]
    keys = KEYS[flow]
    one, other = (table.combine_chunks().sort_by([(key, "ascending") for key in keys]) for table in (ours, theirs))
    for key in keys:
        odd = _first(pc.not_equal(one[key].cast(other[key].type), other[key]))
        if odd is not None:
            return [f"result {odd}: {key} is {one[key][odd].as_py()!r} and {other[key][odd].as_py()!r}"]
    return _COMPARE[flow](one, other)


def _etl(one: pa.Table, other: pa.Table) -> list[str]:
    problems = []
    (names, values), (others, theirs) = (_entries(table["senml"]) for table in (one, other))
    if not names.equals(others):
        return ["entries have other names, or another order"]
    numbers, texts = (_numbers(each) for each in (values, theirs))
    problems += _unlike(numbers[0], texts[0], 1e-6, "number of an entry")
    odd = _first(pc.not_equal(numbers[1], texts[1]))
    return problems + ([] if odd is None else [f"text {odd}: {numbers[1][odd]} and {texts[1][odd]}"])


def _entries(messages: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return the names and the values of all entries, each message's in the order of their names, and its time last."""
    import pyarrow.json as pj

    texts = messages.combine_chunks() if isinstance(messages, pa.ChunkedArray) else messages
    data = ("\n".join(texts.to_pylist()) + "\n").encode()
    entry = pa.struct([("n", pa.string()), ("v", pa.string()), ("sv", pa.string())])
    schema = pa.schema([("e", pa.list_(entry)), ("bt", pa.string())])
    table = pj.read_json(
        pa.BufferReader(data),
        pj.ReadOptions(block_size=2**24),
        pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    lists = table["e"].combine_chunks()
    every = lists.flatten()
    rows = pc.list_parent_indices(lists)
    order = pc.sort_indices(pa.table({"row": rows, "n": every.field("n")}), [("row", "ascending"), ("n", "ascending")])
    values = pc.coalesce(every.field("v"), every.field("sv")).take(order)
    return every.field("n").take(order), pa.concat_arrays([values, table["bt"].combine_chunks()])


def _numbers(values: pa.Array) -> tuple[np.ndarray[Any, Any], pa.Array]:
    """Return those of some texts that are numbers, 0 for the others, and these, empty where there is a number."""
    is_number = pc.match_substring_regex(values, r"^-?[0-9.]+(E-?[0-9]+)?$")
    return (
        pc.if_else(is_number, values, "0").cast(pa.float64()).to_numpy(zero_copy_only=False),
        pc.if_else(is_number, "", values),
    )


def _stats(one: pa.Table, other: pa.Table) -> list[str]:
    # 32-bit floats here, Python's own there: a prediction ten values ahead shows the difference, the more so where a line of
    # hundreds comes to nought
    pairs = [_many(table["result"].combine_chunks()) for table in (one, other)]
    if not np.array_equal(pairs[0][0], pairs[1][0]):
        return ["results have another number of predictions"]
    (counts, one_s), (_, other_s) = pairs
    if not len(one_s):
        return []
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    size = np.repeat(np.maximum(1, np.maximum.reduceat(np.abs(one_s), starts)), counts)
    return _unlike(one_s / size, other_s / size, 1e-4, "number of a result, by the largest of it,")


def _many(results: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return how many numbers each result has, and all of them."""
    lists = pc.split_pattern(pc.utf8_rtrim(results, "#"), "#")
    return pc.list_value_length(lists).to_numpy(), lists.flatten().cast(pa.float64()).to_numpy()


def _pred(one: pa.Table, other: pa.Table) -> list[str]:
    is_class = pc.equal(one["kind"], "DTC")
    classes = [table.filter(is_class) for table in (one, other)]
    odd = _first(pc.not_equal(*(table["label"] for table in classes)))
    if odd is not None:
        return [f"message {classes[0]['msg'][odd]}: {classes[0]['label'][odd]} and {classes[1]['label'][odd]}"]
    texts = _unlike(classes[0]["result"].to_numpy(), classes[1]["result"].to_numpy(), 0, "class")
    # an error is in units of the latest average of any sensor, and which that is depends on how records are batched; before
    # the first it is infinite
    errors = [table.filter(pc.invert(is_class))["result"].to_numpy().astype(np.float64) for table in (one, other)]
    both = np.isfinite(errors[0]) & np.isfinite(errors[1]) & (np.abs(errors[0]) > 1e-6)
    ratio = errors[1][both] / errors[0][both]
    wrong = np.flatnonzero((ratio < _LEAST / _MOST) | (ratio > _MOST / _LEAST))
    if len(wrong) or not len(ratio):
        texts.append(f"{len(wrong)} of {len(ratio)} errors are not in units of any average")
    elif len(ratio) >= _MANY and not 0.8 < np.median(ratio) < 1.25:
        texts.append(f"errors are {np.median(ratio):.2f} times as large there")
    return texts


_COMPARE: dict[str, Callable[[pa.Table, pa.Table], list[str]]] = {"etl": _etl, "stats": _stats, "pred": _pred}


def _unlike(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], relative: float, what: str) -> list[str]:
    wrong = np.flatnonzero(~np.isclose(one, other, rtol=relative, atol=relative))
    return [f"{what} {wrong[0]}: {one[wrong[0]]} and {other[wrong[0]]}"] if len(wrong) else []


def _first(is_odd: Any) -> int | None:
    rows = np.flatnonzero(is_odd.to_numpy(zero_copy_only=False) if isinstance(is_odd, pa.Array) else is_odd.to_numpy())
    return int(rows[0]) if len(rows) else None
