"""What leaves a flow as rows of Spark's: the records of one output, with what steps counted observed beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.spark.envelope import COUNTS, FIRST_SINK, Envelope
from headwater.spark.frames import SQL, named
from headwater.spark.stages import Layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_COUNTED = "_headwater"
#: of what tasks count, that which a program would act on
_OBSERVED = ("records_in", "records_out", "late", "dead_letters")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One output of a flow that was cut into stages."""

    layout: Layout
    sink: str

    def of(self, rows: DataFrame, observe: str | Observation) -> DataFrame:
        """Return the records that come to the output, out of all rows that leave the flow."""
        from pyspark.sql import functions as F

        schema = self.layout.flow.steps[self.sink].inputs[0].schema
        if _COUNTED in schema:
            raise FlowError(f"a column of output {self.sink!r} is called {_COUNTED!r}, which is taken; rename it")
        target = FIRST_SINK + self.layout.sinks.index(self.sink)
        fields = [f"`{name}` {SQL[kind]}" for name, kind in schema.fields]
        counts = ", ".join(f"{name}: bigint" for name in _OBSERVED)
        declared = ", ".join([*fields, f"{_COUNTED} struct<step: string, {counts}>"])
        mine = rows.where(F.col("target").isin(target, COUNTS)).select("target", "frame")
        result = mine.mapInArrow(_unpacked(schema, target), declared).observe(observe, *self._observed())
        return result.where(F.col(_COUNTED).isNull()).select(*map(named, schema))

    def _observed(self) -> list[Any]:
        """Return sums of what was counted: `late` and `dead_letters` of all, and all of each step by its name."""
        from pyspark.sql import functions as F

        def total(name: str, step: str | None = None) -> Any:
            count = F.col(f"{_COUNTED}.{name}")
            if step is not None:
                count = F.when(F.col(f"{_COUNTED}.step") == step, count)
            return F.coalesce(F.sum(count), F.lit(0)).alias(name)

        steps = [step.name for step in self.layout.flow.steps.values() if not step.is_sink]
        return [
            total("late"),
            total("dead_letters"),
            *(F.struct(*(total(name, step) for name in _OBSERVED)).alias(step) for step in steps),
        ]


def observed(rows: DataFrame, observe: str | Observation, *, tells_late: bool) -> DataFrame:
    """Return records that no step of ours has seen, with how many there are observed, and that none broke a step.

    None was late either, but for Spark's own windows: what those drop is not told.
    """
    from pyspark.sql import functions as F

    none = F.coalesce(F.sum(F.lit(0)), F.lit(0))
    counts = [none.alias("dead_letters"), *([none.alias("late")] if tells_late else [])]
    return rows.observe(observe, F.count(F.lit(1)).alias("records_out"), *counts)


def _unpacked(schema: Schema, target: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(tables: Iterator[Any]) -> Iterator[Any]:
        for table in tables:
            for to, frame in zip(table.column(0).to_pylist(), table.column(1), strict=True):
                data = frame.as_buffer()
                yield from _counts(schema, data.to_pybytes()) if to == COUNTS else _records(schema, data)

    return run


def _records(schema: Schema, frame: Any) -> Iterator[Any]:
    import pyarrow as pa

    from headwater.io.arrow import table_of

    batch = Envelope.unpack(frame).batch
    if batch is not None:
        for part in table_of(batch, schema).to_batches():
            none = pa.nulls(part.num_rows, _counted_type())
            yield pa.RecordBatch.from_arrays([*part.columns, none], names=[*schema, _COUNTED])


def _counts(schema: Schema, data: bytes) -> Iterator[Any]:
    import pyarrow as pa

    from headwater.io.arrow import ARROW

    steps = msgspec.msgpack.decode(data)["steps"]
    counted = [{"step": step, **{name: did[name] for name in _OBSERVED}} for step, did in steps.items()]
    arrays = [pa.nulls(len(counted), ARROW[kind]) for _, kind in schema.fields]
    yield pa.RecordBatch.from_arrays([*arrays, pa.array(counted, _counted_type())], names=[*schema, _COUNTED])


def _counted_type() -> Any:
    import pyarrow as pa

    return pa.struct([("step", pa.string()), *((name, pa.int64()) for name in _OBSERVED)])
