"""The flows by hand with state by bucket of keys, a bucket's rows at once: as a stream, and as a job over what is there.

Messages are parsed on Arrow batches, and go to a bucket by a hash of their sensor. `stream` keeps what is known of all
sensors of a bucket in one value of Spark's state; `job` has all rows of a bucket at once, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import senml
import state
from etl import RANGES, UNITS
from pred import LABELS, PREDICTED, predicted
from pyspark.sql import DataFrame
from vectors import BITS as RANK_BITS
from vectors import (
    GAP,
    PLACES,
    WINDOW,
    Grouped,
    distinct,
    filled,
    grown,
    joined,
    kalman,
    latest,
    moments,
    regression,
    slots_of,
)

Kept = dict[str, Any]  #: the names of a bucket's sensors, and arrays with a row for each
Flow = Callable[[pa.Table, Kept], pa.Table]  #: takes rows in order and what is kept, which changes


class Bucketed:
    """A flow: the columns that travel to a bucket, how messages are spread, what a bucket does, and what it returns."""

    def __init__(
        self, columns: str, parse: Callable[[pa.RecordBatch, Sequence[int]], Any], run: Flow, out: str
    ) -> None:
        self.columns, self.parse, self.run, self.out = f"bucket int, {columns}", parse, run, out


def stream(messages: DataFrame, flow: Bucketed, numbers: Sequence[int]) -> DataFrame:
    """Run a flow with its state in buckets of these numbers."""
    return state.in_pandas(_parsed(messages, flow, numbers).groupBy("bucket"), _on_bucket(flow), flow.out)


def job(messages: DataFrame, flow: Bucketed, count: int) -> DataFrame:
    """Run a flow over all there is, in so many buckets, each a partition."""
    rows = _parsed(messages, flow, range(count)).repartitionById(count, "bucket")
    return rows.mapInArrow(_on_partition(flow), flow.out)


def _parsed(messages: DataFrame, flow: Bucketed, numbers: Sequence[int]) -> DataFrame:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from flow.parse(batch, numbers)

    return messages.mapInArrow(run, flow.columns)


def _on_bucket(flow: Bucketed) -> state.Run:
    def run(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], data: bytes | None) -> tuple[pd.DataFrame, bytes]:
        table = pa.concat_tables([pa.Table.from_pandas(frame, preserve_index=False) for frame in frames])
        memory: Kept = {} if data is None else _loaded(data)
        return flow.run(table.sort_by("msg"), memory).to_pandas(), _saved(memory)

    return run


def _on_partition(flow: Bucketed) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(list(batches)) if batches else None
        for bucket in table["bucket"].unique().to_pylist() if table is not None else ():
            rows = table.filter(pc.equal(table["bucket"], bucket)).sort_by("msg")
            yield from flow.run(rows, {}).to_batches()

    return run


def _saved(memory: Kept) -> bytes:
    document = {n: [v.dtype.str, v.shape, v.tobytes()] if isinstance(v, np.ndarray) else v for n, v in memory.items()}
    return msgspec.msgpack.encode(document)


def _loaded(data: bytes) -> Kept:
    document = msgspec.msgpack.decode(data)
    arrays = {n: v for n, v in document.items() if n not in ("names", "latest")}
    loaded_arrays = {n: np.frombuffer(b, kind).reshape(shape).copy() for n, (kind, shape, b) in arrays.items()}
    return {**document, **loaded_arrays}


def _spread(sources: pa.Array, numbers: Sequence[int]) -> pa.Array:
    """Return the number of the bucket of each sensor."""
    coded = sources.dictionary_encode()
    of = [numbers[crc32(name.encode()) % len(numbers)] for name in coded.dictionary.to_pylist()]
    return pa.array(of, pa.int32()).take(coded.indices)


def _grouped(table: pa.Table, memory: Kept, arrays: Mapping[str, tuple[tuple[int, ...], str, float]]) -> Grouped:
    """Return a bucket's rows by sensor; what is kept gets rows for sensors that are new."""
    slots, memory["names"] = slots_of(memory.get("names", []), table["source"].combine_chunks())
    many = len(memory["names"])
    for name, (shape, kind, fill) in arrays.items():
        memory[name] = grown(memory.get(name, np.empty((0, *shape), kind)), many, fill)
    return Grouped(slots, many)


# -- ETL --------------------------------------------------------------------------------------------------------------


def etl(notes: Mapping[str, tuple[str, str]]) -> Bucketed:
    def parse(batch: pa.RecordBatch, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        columns = senml.parsed_columns(batch)
        for name, (low, high) in RANGES.items():
            values = columns[name].to_numpy()
            within = (values >= np.float32(low)) & (values <= np.float32(high))
            columns[name] = pa.array(np.where(within, values, np.float32(np.nan)))
        yield pa.RecordBatch.from_pydict({"bucket": _spread(columns["source"], numbers), **columns})

    def run(table: pa.Table, memory: Kept) -> pa.Table:
        grouped = _grouped(table, memory, dict.fromkeys(RANGES, ((GAP,), "f4", np.nan)))
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        for name in RANGES:
            values, memory[name] = filled(grouped, columns[name].to_numpy(zero_copy_only=False), memory[name])
            columns[name] = pa.array(values)
        coded = columns["source"].dictionary_encode()
        texts = [notes[name] for name in coded.dictionary.to_pylist()]
        for at, name in enumerate(("location", "type")):
            columns[name] = pa.array([each[at] for each in texts], pa.string()).take(coded.indices)
        return pa.table({"msg": columns["msg"], "senml": _senml(columns)})

    return Bucketed(senml.ROW, parse, run, "msg long, senml string")


def _senml(columns: Mapping[str, pa.Array]) -> pa.Array:
    parts: list[Any] = []
    before = '{"e":['
    for name, unit in {**UNITS, "location": "string", "type": "string"}.items():
        kind = "sv" if name in ("source", "location", "type") else "v"
        parts += [f'{before}{{"{kind}":"', columns[name].cast(pa.string())]
        before = f'","u":"{unit}","n":"{name}"}},'
    parts += [before[:-1] + '],"bt":"', columns["timestamp"].cast(pa.string()), '"}']
    return pc.binary_join_element_wise(*parts, "")


# -- STATS ------------------------------------------------------------------------------------------------------------


def stats() -> Bucketed:
    """Return STATS; all messages go to the last bucket too, which counts distinct sensors."""
    names = senml.NUMBERS
    columns = ", ".join(["msg long, source string", *(f"{name} float" for name in names)])
    many = len(names)
    arrays = {
        "estimate": ((many,), "f8", 0.0),
        "variance": ((many,), "f8", 30.0),
        "last": ((WINDOW, many), "f8", np.nan),
        "items": ((many, PLACES), "f4", 0.0),
        "counts": ((many, PLACES), "i8", 0),
        "seen": ((), "i8", 0),
        "used": ((many,), "i8", 0),
    }

    def parse(batch: pa.RecordBatch, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        columns = senml.parsed_columns(batch)
        lean = {name: columns[name] for name in ("msg", "source", *names)}
        yield pa.RecordBatch.from_pydict({"bucket": _spread(columns["source"], numbers[:-1]), **lean})
        last = pa.repeat(pa.scalar(numbers[-1], pa.int32()), len(batch))
        nothing = {name: pa.nulls(len(batch), pa.float32()) for name in names}
        yield pa.RecordBatch.from_pydict(
            {"bucket": last, "msg": columns["msg"], "source": columns["source"], **nothing}
        )

    def run(table: pa.Table, memory: Kept) -> pa.Table:
        if table["dust"].null_count or ("ranks" in memory):
            return _counted(table, memory)
        grouped = _grouped(table, memory, arrays)
        order = pa.array(grouped.order)
        msg, source = (table[name].combine_chunks().take(order) for name in ("msg", "source"))
        values = np.stack([table[name].combine_chunks().to_numpy()[grouped.order] for name in names], axis=1)
        smooth = kalman(grouped, values, memory["estimate"], memory["variance"])
        which, lines, memory["last"] = regression(grouped, smooth.astype(np.float64), memory["last"])
        second = moments(grouped, values, memory["items"], memory["counts"], memory["seen"], memory["used"])
        tables = []
        for k, name in enumerate(names):
            rows = pa.array(which)
            tables.append(_results(msg.take(rows), source.take(rows), name, "SLR", joined(lines[:, k])))
            tables.append(_results(msg, source, name, "SOM", pa.array(second[:, k]).cast(pa.string())))
        return pa.concat_tables(tables)

    def _counted(table: pa.Table, memory: Kept) -> pa.Table:
        ranks = memory.get("ranks", np.zeros(2**RANK_BITS, np.int64))
        result, memory["ranks"] = distinct(table["source"].combine_chunks(), ranks)
        msg, source = table["msg"].combine_chunks(), table["source"].combine_chunks()
        return pa.concat_tables([_results(msg, source, name, "DA", result) for name in names])

    return Bucketed(columns, parse, run, "msg long, source string, obs string, kind string, result string")


def _results(msg: pa.Array, source: pa.Array, obs: str, kind: str, result: pa.Array) -> pa.Table:
    texts = {name: pa.repeat(pa.scalar(value), len(msg)) for name, value in (("obs", obs), ("kind", kind))}
    return pa.table({"msg": msg, "source": source, **texts, "result": result})


# -- PRED -------------------------------------------------------------------------------------------------------------


def pred() -> Bucketed:
    """Return PRED: the latest average of any sensor takes all messages in order, in one bucket."""
    labels = pa.array(LABELS, pa.string())

    def parse(batch: pa.RecordBatch, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        columns = predicted(batch)
        yield pa.RecordBatch.from_pydict(
            {"bucket": pa.repeat(pa.scalar(numbers[0], pa.int32()), len(batch)), **columns}
        )

    def run(table: pa.Table, memory: Kept) -> pa.Table:
        grouped = _grouped(table, memory, {"total": ((), "f8", 0.0), "count": ((), "i8", 0)})
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        measured, forecast = columns["measured"].to_numpy(), columns["predicted"].to_numpy()
        averages = latest(grouped, measured, memory["total"], memory["count"], memory.get("latest", 0.0))
        memory["latest"] = float(averages[-1])
        with np.errstate(divide="ignore", invalid="ignore"):
            error = ((measured - forecast) / averages[:-1]).astype(np.float32)
        klass = columns["klass"]
        both = {"msg": columns["msg"], "source": columns["source"]}
        dtc, mlr, none = (pa.repeat(pa.scalar(text), len(klass)) for text in ("DTC", "MLR", ""))
        return pa.concat_tables(
            [
                pa.table({**both, "kind": dtc, "result": klass.cast(pa.float32()), "label": labels.take(klass)}),
                pa.table({**both, "kind": mlr, "result": pa.array(error), "label": none}),
            ]
        )

    return Bucketed(PREDICTED, parse, run, "msg long, source string, kind string, result float, label string")
