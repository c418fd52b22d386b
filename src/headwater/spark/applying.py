"""A flow inside a Spark program: DataFrames in, DataFrames out, streaming or not; the program starts the query."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from headwater.errors import FlowError, listed
from headwater.flow.endpoints import Source
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.steps import Read, Write
from headwater.flow.stream import Stream
from headwater.io.memory import Discard
from headwater.spark.batched import with_level_at_once
from headwater.spark.broadcast import carried
from headwater.spark.frames import SQL, Frame, end_of, event_time_of, named, rows_of_frame, with_inputs
from headwater.spark.heads import Head, cut_behind, heads_of
from headwater.spark.interpreter import check_workers
from headwater.spark.keyed import SourceStage, with_level
from headwater.spark.options import Meaning, check_buckets, check_meaning
from headwater.spark.outcome import Outcome, observed
from headwater.spark.relations import PLAIN
from headwater.spark.sources import own

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

#: what makes a flow of DataFrames: a flow, or a function that is given a stream for each and returns one or several
Builder = Callable[..., Stream | Mapping[str, Stream]]
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_UNCHECKED = "spark.sql.streaming.unsupportedOperationCheck"


def apply(
    flow: Flow | Builder,
    inputs: DataFrame | Mapping[str, DataFrame] | None = None,
    *,
    buckets: int | None = None,
    observe: str | Observation | None = None,
    meaning: Meaning = "headwater",
) -> Any:
    """Return what a flow makes of DataFrames, as a DataFrame, or as several by name where it has several outputs.

    `inputs` stand in for the flow's sources, by name where there are several, and its sinks are not opened: each is an
    output. Sources that are given none are read as they are, beside tables to their end. A function is given a `Stream` for
    each input instead, `apply(lambda levels: levels.filter(…), df)`, and returns one or a mapping of several.

    Streaming DataFrames give streaming ones, whose state lives in the checkpoint of whoever writes them. Keys are spread
    over `buckets` (Spark's shuffle partitions unless told), fixed for the life of a checkpoint. What is no stream has an
    end, at which windows close, and is taken in order of event time, so that nothing is late; where the flow has none,
    in the DataFrame's own order. Each output is computed by itself: to have several of one computation, give the flow
    sinks, and run it with `spark.start(flow, inputs=…)`.

    First steps that are expressions become Columns where Spark means exactly the same by them, so that filters and columns
    go down to what the DataFrame reads. With `meaning="spark"`, event time, windows and what Spark means otherwise do, too:
    late records are dropped, and event time moves once in a micro-batch. What Spark runs itself counts nothing.

    What steps count, `late` and `dead_letters` among it, is observed under the flow's name, or what `observe` says, as
    `DataFrame.observe` has it: of a stream in its progress, for each micro-batch; of a batch in an `Observation` given.
    """
    check_meaning(meaning)
    check_buckets(buckets)
    frames_given = inputs if inputs is not None else {}
    if isinstance(flow, Flow):
        whole = with_inputs(flow, frames_given)
        sinks = {step.name: step.name for step in whole.steps.values() if step.is_sink}
    else:
        whole, sinks = _build(flow, frames_given)
    if not sinks:
        raise FlowError(f"flow {whole.name!r} has no output; end it with .write(name, io.Discard())")
    frames = _frames(whole)
    streaming = _is_stream(whole, frames)
    for step in whole.steps.values():
        if step.is_source and step.name not in frames:
            own.check(whole.name, step.name, _source(whole, step.name), streaming=streaming)
    spark = next(iter(frames.values())).rows.sparkSession
    if len(sinks) == 1:
        (sink,) = sinks.values()
        return _output(spark, whole, sink, buckets, whole.name if observe is None else observe, meaning, streaming)
    if observe is not None and not isinstance(observe, str):
        raise FlowError(f"flow {whole.name!r} has the outputs {listed(sinks)}; an Observation is for one")
    return {
        name: _output(
            spark, _leading_to(whole, sink), sink, buckets, f"{observe or whole.name}.{name}", meaning, streaming
        )
        for name, sink in sinks.items()
    }


def query(
    inputs: DataFrame | Mapping[str, DataFrame],
    text: Any,
    *,
    time: str | Mapping[str, str] | None = None,
    lateness: str = "0 s",
    buckets: int | None = None,
    observe: str | Observation | None = None,
) -> DataFrame:
    """Return what a query in the language of Siddhi finds in DataFrames: patterns, sequences, windows, joins.

    A single DataFrame is called `stream` in the query, several have the names that they are given by. `time` is the column
    of event time, for each DataFrame by name if they differ; where it is not said and there is just one timestamp, that
    one. Records may come `lateness` out of order. `text` may be what `headwater.cep` builds, too.
    """
    frames = dict(inputs) if isinstance(inputs, Mapping) else {"stream": inputs}
    flow = Flow("query")
    streams = {}
    for name, rows in frames.items():
        stream = flow.read(f"rows of {name}", Frame(rows))
        column = _time_column(name, stream, time)
        streams[name] = stream if column is None else stream.event_time(name, column, lateness=lateness, ahead=_ALWAYS)
    flow.query("matches", text, streams=streams).write("out", Discard())
    result: DataFrame = apply(flow, buckets=buckets, observe=observe)
    return result


_ALWAYS = "36500 d"  # a table of the future, or of a simulation, is nobody's broken clock


def _time_column(name: str, stream: Stream, time: str | Mapping[str, str] | None) -> str | None:
    column = time.get(name) if isinstance(time, Mapping) else time
    if column is not None:
        return column
    times = [column for column, kind in stream.schema.fields if kind == "time"]
    if len(times) > 1:
        raise FlowError(
            f"input {name!r} has the timestamps {listed(times)}; say which is event time: time={times[0]!r}"
        )
    return times[0] if times else None


def _build(builder: Builder, frames: DataFrame | Mapping[str, DataFrame]) -> tuple[Flow, dict[str, str]]:
    """Let a function make a flow of streams that read DataFrames; return it, and the sink of each output."""
    if not callable(builder):
        raise FlowError(f"a flow, or a function that makes one of streams, is expected; got {type(builder).__name__}")
    flow = Flow(getattr(builder, "__name__", "flow").strip("<>"))
    names = _asked_for(builder, flow.name, frames)
    if isinstance(frames, Mapping):
        result = builder(**{name: flow.read(name, Frame(rows)) for name, rows in frames.items()})
    else:
        result = builder(flow.read(names[0], Frame(frames)))
    outputs = result if isinstance(result, Mapping) else {"out": result}
    sinks = {}
    for name, stream in outputs.items():
        if not isinstance(stream, Stream):
            raise FlowError(
                f"{flow.name} must return a stream, or a mapping of several by name; got {type(stream).__name__}"
            )
        sinks[name] = name if name not in flow.steps else f"output {name}"  # a step may be called as what comes of it
        stream.write(sinks[name], Discard())
    return flow, sinks


def _asked_for(builder: Builder, flow_name: str, frames: DataFrame | Mapping[str, DataFrame]) -> list[str]:
    """Return the names of the streams that a function asks for; raises if it cannot be given just those."""
    signature = inspect.signature(builder)
    streams = dict(frames) if isinstance(frames, Mapping) else {}
    names = [name for name, parameter in signature.parameters.items() if parameter.kind not in _REST]
    try:
        signature.bind(**streams) if isinstance(frames, Mapping) else signature.bind(frames)
    except TypeError as error:
        example = ", ".join(f"{name!r}: …" for name in names)
        got = f"the inputs {listed(streams)}" if streams else "none" if isinstance(frames, Mapping) else "one DataFrame"
        raise FlowError(
            f"{flow_name} is given a stream for each input, and takes {listed(names) or 'none'}; got {got} ({error}); "
            f"say which DataFrame is which, as {{{example}}}"
        ) from None
    return names or ["rows"]


def _leading_to(flow: Flow, sink: str) -> Flow:
    """Return the part of a flow that a sink depends on; dead letters come from everywhere."""
    names = {sink}
    for step in reversed(flow.in_order()):
        if step.name in names:
            names |= {edge.step for edge in step.inputs}
    if DEAD_LETTERS in names:
        return flow
    part = Flow.of_steps(flow.name, (step for step in flow.steps.values() if step.name in names))
    for step in list(part.steps.values()):
        first = next(iter(step.outputs), None)  # which has to be read by somebody, though the sink be on another one
        if first is not None and not part.readers_of(step.name, first):
            Stream(part, step.name, first).write(f"{step.name}.{first} for nobody", Discard())
    return part


def _output(
    spark: SparkSession,
    flow: Flow,
    name: str,
    buckets: int | None,
    observe: str | Observation,
    meaning: Meaning,
    streaming: bool,
) -> DataFrame:
    """Return what comes to one sink."""
    frames = _frames_in(flow)
    flow = flow.replaced({step.name: Write(Discard()) for step in flow.steps.values() if step.is_sink})
    heads = heads_of(flow, meaning)
    inputs = {step: frame.rows for step, frame in frames.items()}
    alone = _by_spark_alone(flow, name, heads, inputs)
    if alone is not None:
        return observed(alone, observe, tells_late=meaning == "headwater")
    check_workers(spark)
    layout = cut_behind(flow, heads, buckets or int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    sent_layout = carried(layout)
    parts = []
    for step, head in heads.items():
        prefix = SourceStage(sent_layout, layout.source_stage(step))
        if step not in frames:
            make_rows = own.rows_as_stream if streaming else own.rows_at_once
            parts.append(make_rows(spark, step, _source(flow, step), head.columns, prefix))
            continue
        order = None if streaming else event_time_of(layout.flow, step)
        parts.append(rows_of_frame(head.of(inputs), head.schema.only(head.columns), prefix, order))
        if not streaming:
            parts.append(end_of(spark, prefix))
    rows = reduce(lambda a, b: a.union(b), parts)
    for level in range(1, layout.levels + 1):
        rows = (
            with_level(rows, sent_layout, layout, level)
            if streaming
            else with_level_at_once(rows, sent_layout, layout, level)
        )
    if streaming and layout.levels + sum(head.waits for head in heads.values()) > 1:
        # several stages with state, one after the other, are safe as ours need none of Spark's own event time
        _set(spark, _UNCHECKED, "false")
    return Outcome(layout, name).of(rows, observe)


def _by_spark_alone(
    flow: Flow, name: str, heads: Mapping[str, Head], rows: Mapping[str, DataFrame]
) -> DataFrame | None:
    """Return what comes to a sink where no step is left to us; None where one is, or where only we write its columns."""
    (source,) = flow.steps[name].inputs
    head = next((head for head in heads.values() if head.steps and head.steps[-1].name == source.step), None)
    if head is None:
        return None
    whole = replace(head, columns=tuple(head.schema)).of(rows)
    kinds = dict(head.schema.fields)
    if any(kind not in (("timestamp",) if kinds[column] == "time" else PLAIN) for column, kind in whole.dtypes):
        return None
    return whole.select(*(named(column).cast(SQL[kind]).alias(column) for column, kind in kinds.items()))


def _source(flow: Flow, step: str) -> Source:
    kind = flow.steps[step].kind
    assert isinstance(kind, Read)
    return kind.source


def _frames_in(flow: Flow) -> dict[str, Frame]:
    """Return the DataFrames that a flow reads, by step."""
    sources = {step.name: _source(flow, step.name) for step in flow.steps.values() if step.is_source}
    return {name: source for name, source in sources.items() if isinstance(source, Frame)}


def _frames(flow: Flow) -> dict[str, Frame]:
    """Return the same; raises if there are none, or others beside them where only Java could read these."""
    frames = _frames_in(flow)
    own_ones = [step.name for step in flow.steps.values() if step.is_source and step.name not in frames]
    if not frames:
        raise FlowError(
            f"source {own_ones[0]!r} of flow {flow.name!r} is given no DataFrame; give one, or let Headwater run the flow: "
            "spark.run(flow)"
        )
    if own_ones and not all(hasattr(frame.rows, "_jdf") for frame in frames.values()):
        raise FlowError(
            f"source {own_ones[0]!r} of flow {flow.name!r} is given no DataFrame, and would have to be sent to executors, "
            "which Spark Connect does not do; give a DataFrame of it"
        )
    return frames


def _is_stream(flow: Flow, frames: Mapping[str, Frame]) -> bool:
    streams = {name for name, frame in frames.items() if frame.rows.isStreaming}
    rest = set(frames) - streams
    if streams and rest:
        raise FlowError(
            f"flow {flow.name!r}: {listed(streams)} is a stream and {listed(rest)} is not, and Spark cannot put both into "
            "one; read the table as a stream too (spark.readStream), or join it before"
        )
    return bool(streams)


def _set(spark: SparkSession, name: str, value: str) -> None:
    if spark.conf.get(name, "") != value:
        spark.conf.set(name, value)
