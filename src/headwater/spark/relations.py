"""Steps as Spark's own operators: what can be made one, and the DataFrame that comes of it.

`planned` asks no Spark, so that a flow can be explained without one; what it lets pass, `apply_step` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING

from headwater.data.schema import Schema, Type
from headwater.flow.aggregates import Aggregate
from headwater.flow.expr import Column as Named
from headwater.flow.expr import Expr
from headwater.flow.flow import Flow
from headwater.flow.steps import EventTime, Filter, Join, Select, Step, WindowAggregate
from headwater.flow.windows import Count, Session, Sliding, by_processing_time
from headwater.spark.columns import Columns, NotNativeError
from headwater.spark.frames import named
from headwater.spark.options import Meaning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WINDOW = "_headwater_window"
_LATER = "_headwater_later"
_FAR = "9999-12-31 00:00:00"  #: behind all that a stream may bring
#: types of Spark's in which an expression computes what it does here; a number of fewer bits is widened first
PLAIN = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string")
_RIGHT = "_headwater_right_"
_LATE = "somebody reads its late records, and Spark drops them"
_OURS = "is exact for each record here, and for each micro-batch in Spark; meaning='spark' takes that"


@dataclass(frozen=True, slots=True)
class Relation:
    """What Spark has of a stream: its columns, and which of them are not what they are in a batch."""

    schema: Schema
    #: columns of time that are timestamps in Spark; others are microseconds
    timestamps: frozenset[str] = frozenset()
    #: columns that can be passed on, and nothing be computed of: their types in Spark
    opaque: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_frame(cls, rows: DataFrame, schema: Schema) -> Relation:
        """Return what a DataFrame is that is read as columns of a schema."""
        types = dict(rows.dtypes)
        timestamps = frozenset(name for name in schema if types[name] == "timestamp")
        opaque = {name: types[name] for name in schema if types[name] not in (*PLAIN, "timestamp")}
        return cls(schema, timestamps, opaque)

    @classmethod
    def of_table(cls, schema: Schema) -> Relation:
        """Return what a table is that Spark reads as columns of a schema, by the types that `frames.SQL` gives them."""
        return cls(schema, frozenset(name for name, kind in schema.fields if kind == "time"))

    def columns(self, meaning: Meaning) -> Columns:
        """Return what makes Columns of expressions over it."""
        return Columns(self.schema, meaning, self.timestamps, self.opaque)

    def _like(self, schema: Schema, sources: Mapping[str, str]) -> Relation:
        """Return what it becomes: `sources` are columns that are passed on, by their new names; times are timestamps."""
        computed = {name for name, kind in schema.fields if kind == "time" and name not in sources}
        timestamps = {name for name, before in sources.items() if before in self.timestamps} | computed
        opaque = {name: self.opaque[before] for name, before in sources.items() if before in self.opaque}
        return Relation(schema, frozenset(timestamps), opaque)


def planned(step: Step, before: Relation, meaning: Meaning, flow: Flow) -> Relation:
    """Return what comes of a step as an operator of Spark's own; raises NotNativeError, with the reason, if it has none."""
    match step.kind:
        case Filter(condition):
            _check([condition], before, meaning)
            return before
        case Select(columns, keep):
            _check([expr for _, expr in columns if not isinstance(expr, Named)], before, meaning)
            return before._like(step.outputs["out"], _passed_on(columns, before.schema, keep=keep))
        case EventTime(column):
            if meaning == "headwater":
                raise NotNativeError(f"event time {_OURS}")
            if column not in before.timestamps:
                raise NotNativeError(f"event time {column!r} is no timestamp in Spark")
            return before
        case WindowAggregate():
            _check_window(step, step.kind, before, meaning, flow)
            return before._like(step.outputs["out"], {name: name for name in step.kind.keys})
    if len(step.inputs) > 1:
        raise NotNativeError("it puts several streams together")
    raise NotNativeError(f"Spark has no operator of its own for it: {step.kind}")


def planned_join(step: Step, left: Relation, right: Relation, meaning: Meaning, flow: Flow) -> Relation:
    """Return what comes of a join of two streams as Spark's own; raises NotNativeError, with the reason, if it cannot be."""
    kind = step.kind
    assert isinstance(kind, Join)
    if meaning == "headwater":
        raise NotNativeError(f"a join {_OURS}")
    for side, time, keys in ((left, kind.left_time, kind.left_keys), (right, kind.right_time, kind.right_keys)):
        if time not in side.timestamps:
            raise NotNativeError(f"event time {time!r} is no timestamp in Spark")
        for name in keys:
            if name in side.opaque:
                raise NotNativeError(f"its key {name!r} is {side.opaque[name]} in Spark")
    if flow.readers_of(step.name, "late") or flow.readers_of(step.name, "late right"):
        raise NotNativeError(_LATE)
    _refuse_time_behind(step, flow)
    timestamps = left.timestamps.union(new for old, new in kind.renamed if old in right.timestamps)
    opaque = {new: right.opaque[old] for old, new in kind.renamed if old in right.opaque}
    return Relation(step.outputs["out"], timestamps, {**left.opaque, **opaque})


def joined(left: DataFrame, right: DataFrame, step: Step) -> DataFrame:
    """Return the pairs of two DataFrames by a join that was planned; both tell their event time."""
    from pyspark.sql import functions as F

    kind = step.kind
    assert isinstance(kind, Join)
    # under names that no column of the left has
    other = right.select(*(named(name).alias(_RIGHT + name) for name in right.columns))
    within = F.lit(timedelta(microseconds=kind.within_us))
    at, beside = named(kind.left_time), named(_RIGHT + kind.right_time)
    near = (at >= beside - within) & (at <= beside + within)
    keys = zip(kind.left_keys, kind.right_keys, strict=True)
    same = [named(mine) == named(_RIGHT + theirs) for mine, theirs in keys]
    pairs = left.join(other, reduce(lambda a, b: a & b, [near, *same]))
    added = (named(_RIGHT + old).alias(new) for old, new in kind.renamed)
    return pairs.select(*map(named, left.columns), *added).alias(step.name)


def apply_step(rows: DataFrame, step: Step, before: Relation, meaning: Meaning) -> DataFrame:
    """Return what comes of a step that was planned; in Spark's plans it is called by its name."""
    return _apply_kind(rows, step, before.columns(meaning)).alias(step.name)


def _apply_kind(rows: DataFrame, step: Step, columns: Columns) -> DataFrame:
    match step.kind:
        case Filter(condition):
            return reduce(lambda left, condition: left.where(condition), columns.where(condition), rows)
        case Select(pairs, _):
            computed = dict(pairs)
            schema = step.outputs["out"]
            return rows.select(*(_column(columns, name, computed.get(name, Named(name)), schema) for name in schema))
        case WindowAggregate() as kind:
            return _windowed(rows, kind, columns, step.outputs["out"])
    raise AssertionError(step)


def watermarked(rows: DataFrame, time: str, declared: EventTime | None, last: DataFrame | None) -> DataFrame:
    """Have Spark follow the event time of a stream, as it was said; a row of `last` is one that lies behind all others."""
    from pyspark.sql import functions as F

    assert declared is not None
    if not rows.isStreaming:
        return rows
    if last is not None:
        nothing = (F.lit(None).cast(kind).alias(name) for name, kind in rows.dtypes if name != time)
        rows = rows.unionByName(last.select(F.lit(_FAR).cast("timestamp").alias(time), *nothing))
    return rows.withWatermark(time, f"{declared.lateness_us} microseconds")


def _check(expressions: list[Expr], before: Relation, meaning: Meaning) -> None:
    columns = before.columns(meaning)
    for expr in expressions:
        why = columns.why_not(expr)
        if why is not None:
            raise NotNativeError(why)


def _passed_on(columns: tuple[tuple[str, Expr], ...], schema: Schema, *, keep: bool) -> dict[str, str]:
    """Return the columns that a select passes on, by their new names."""
    computed = dict(columns)
    sources = {name: name for name in schema if name not in computed} if keep else {}
    return sources | {name: expr.name for name, expr in columns if isinstance(expr, Named)}


def _column(columns: Columns, name: str, expr: Expr, schema: Schema) -> Column:
    if isinstance(expr, Named):
        return named(expr.name).alias(name)
    return _as_timestamp(columns.of(expr), schema[name]).alias(name)


def _as_timestamp(column: Column, kind: Type) -> Column:
    from pyspark.sql import functions as F

    return F.timestamp_micros(column) if kind == "time" else column


def _check_window(step: Step, kind: WindowAggregate, before: Relation, meaning: Meaning, flow: Flow) -> None:
    window = kind.window
    if isinstance(window, Count):
        raise NotNativeError("Spark has no windows of a number of records")
    if by_processing_time(window):
        raise NotNativeError("a window that closes by the clock has an end that Spark does not know")
    if meaning == "headwater":
        raise NotNativeError(f"a window {_OURS}")
    if kind.time not in before.timestamps:
        raise NotNativeError(f"event time {kind.time!r} is no timestamp in Spark")
    if isinstance(window, Session) and not kind.keys:
        raise NotNativeError("Spark has sessions by key alone")
    if isinstance(window, Session) and window.gap_us == 1:
        raise NotNativeError("Spark puts a record that comes a gap later into the session, and has no shorter gap")
    if flow.readers_of(step.name, "late"):
        raise NotNativeError(_LATE)
    _refuse_time_behind(step, flow)
    for _, aggregate in kind.aggregates:
        if aggregate.function == "custom":
            raise NotNativeError(f"{aggregate} is a function of Python's")
    _check([aggregate.of for _, aggregate in kind.aggregates if aggregate.of is not None], before, meaning)


def _refuse_time_behind(step: Step, flow: Flow) -> None:
    timed = [name for name in flow.reached_from(step.name) if name != step.name and flow.steps[name].kind.timed]
    if timed:
        raise NotNativeError(
            f"{min(timed)!r} behind it goes by event time, and Spark does not tell Python how far it is"
        )


def _windowed(rows: DataFrame, kind: WindowAggregate, columns: Columns, schema: Schema) -> DataFrame:
    from pyspark.sql import functions as F

    assert kind.time is not None
    time = named(kind.time)
    start = F.col(f"{_WINDOW}.start")
    match kind.window:
        case Session() as window:
            # Spark's goes on with a record that comes exactly a gap later: one begins a microsecond later, and ends in time
            tick = F.expr("interval '0.000001' second")
            rows = rows.withColumn(_LATER, (time + tick).alias(_LATER, metadata=rows.schema[kind.time].metadata))
            span, start = F.session_window(_LATER, f"{window.gap_us - 1} microseconds"), start - tick
        case Sliding() as window:
            span = F.window(time, f"{window.size_us} microseconds", f"{window.every_us} microseconds")
        case window:
            assert not isinstance(window, Count)
            span = F.window(time, f"{window.size_us} microseconds")
    aggregates = [
        _as_timestamp(_aggregated(aggregate, columns, time), schema[name]).alias(name)
        for name, aggregate in kind.aggregates
    ]
    grouped = rows.groupBy(*map(named, kind.keys), span.alias(_WINDOW)).agg(*aggregates)
    edges = [start.alias("start"), F.col(f"{_WINDOW}.end").alias("end")]
    return grouped.select(*map(named, kind.keys), *edges, *(named(name) for name, _ in kind.aggregates))


def _aggregated(aggregate: Aggregate, columns: Columns, time: Column) -> Column:
    """Return an aggregate as Spark's; whatever is missing is passed over there, too."""
    from pyspark.sql import functions as F

    if aggregate.of is None:
        return F.count(F.lit(1))
    value, kind = columns.of(aggregate.of), aggregate.of.type_in(columns.schema)
    match aggregate.function:
        case "sum":
            return F.sum(value.cast("double")).cast("float") if kind == "float32" else F.sum(value)
        case "mean":
            return F.avg(value.cast("double"))
        case "std":
            return F.stddev_pop(value.cast("double"))
        case "min":
            return F.min(value)
        case "max":
            return F.max(value)
        case "distinct":  # Spark's own count of different values is not for streams
            return F.size(F.collect_set(value)).cast("bigint")
        case "first":
            return F.min_by(value, F.when(value.isNotNull(), time))
        case "last":
            return F.max_by(value, F.when(value.isNotNull(), time))
    raise AssertionError(aggregate)


def describe(step: Step) -> str:
    """Return as what Spark runs a step that was planned, in words."""
    match step.kind:
        case Filter():
            return "Spark's filter, which goes down to a source that can take it"
        case Select():
            return "Spark's projection: only what is used of a source is read"
        case EventTime(_, lateness_us):
            return f"Spark's watermark, {lateness_us / 1e6:g} s behind"
        case WindowAggregate() as kind:
            what = "session_window" if isinstance(kind.window, Session) else "window"
            return f"Spark's {what} and aggregates"
        case Join():
            return "Spark's join of two streams, by key and an interval of time"
    raise AssertionError(step)
