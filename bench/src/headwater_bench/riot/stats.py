"""STATS as EdgeWise ran it: Bloom filter, Kalman filter and sliding regression, moment, distinct count."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.flow import Flow
from headwater.flow.endpoints import Sink, Source
from headwater.flow.steps import Input, Write
from headwater.flow.stream import Stream
from headwater.io import Discard
from headwater.steps import Kalman
from headwater.steps.bloom import BloomFilter
from headwater_bench.riot.datasets import CITY, Dataset
from headwater_bench.riot.filters import KnownSensors
from headwater_bench.riot.instances import counted
from headwater_bench.riot.parse import ParseObservations, ParseRows, observation_schema, row_schema
from headwater_bench.riot.scans import DistinctCount, SecondMoment, SlidingRegression
from headwater_bench.riot.wide_stats import WideDistinct, WideKalman, WideMoment, WideRegression

#: How many instances of each step EdgeWise ran.
INSTANCES = {"parse": 1, "bloom": 1, "kalman": 1, "slr": 1, "som": 1, "dac": 1, "publish": 3}


def stats(
    source: Source,
    *,
    dataset: Dataset = CITY,
    key: str | None = None,
    known: BloomFilter | None = None,
    publish: Sink | None = None,
    smoothed: Sink | None = None,
    wide: bool = False,
    instances: Mapping[str, int] | None = None,
) -> Flow:
    """Build the flow: every observation of a message gives three results, after ten of its sensor's.

    The original took the longitude for the sensor's id; `key` chooses it, or any other text of a message. By
    default all sensors pass the Bloom filter, as they did in EdgeWise's runs. A sink for `smoothed` also
    takes out what the Kalman filter says.

    With `wide` a message stays one row, and so does each kind of result, with a column for each observation; the
    results are the same.
    """
    count = counted(INSTANCES, instances)
    by = dataset.id if key is None else key
    flow = Flow("stats")
    messages = flow.read("messages", source)
    compute = _wide if wide else _tall
    results, kalman = compute(messages, dataset, by, known, count)
    write_all(flow, "publish", results, publish or Discard(), count["publish"])
    if smoothed is not None:
        smooth = kalman if wide else _with_names(kalman, dataset, by)
        smooth.write("smoothed", smoothed)
    return flow


def _tall(
    messages: Stream, dataset: Dataset, by: str, known: BloomFilter | None, count: Mapping[str, int]
) -> tuple[list[Stream], Stream]:
    """Return the results, and what the Kalman filter says, with a record for each observation."""
    parsed = messages.apply(
        "parse",
        partial(ParseObservations, dataset, dataset.numbers, csv=True),
        out=observation_schema(dataset),
        parallel=count["parse"],
    )
    filtered = parsed.apply("bloom", partial(KnownSensors, dataset, known), parallel=count["bloom"])
    names = Text.of(dataset.numbers)
    out = {"msg": int, by: str, "obs": str, "kind": str, "result": str}
    keyed = filtered.key_by(by, "obs")
    kalman = keyed.scan("kalman", Kalman(), parallel=count["kalman"])
    lines = kalman.key_by(by, "obs").scan("slr", SlidingRegression(names), out=out, parallel=count["slr"])
    moments = keyed.scan("som", SecondMoment(names), out=out, parallel=count["som"])
    counts = filtered.key_by("obs").scan("dac", DistinctCount(names, by), out=out, parallel=count["dac"])
    return [lines, moments, counts], kalman


def _with_names(kalman: Stream, dataset: Dataset, by: str) -> Stream:
    names = Text.of(dataset.numbers)
    return kalman.map_batches(
        "name",
        lambda batch: {"obs": names.take(batch["obs"])},
        out={"msg": int, by: str, "obs": str, "value": "float32"},
    )


def _wide(
    messages: Stream, dataset: Dataset, by: str, known: BloomFilter | None, count: Mapping[str, int]
) -> tuple[list[Stream], Stream]:
    """Return the same with a row for each message: a result then has a column for each observation."""
    parsed = messages.apply(
        "parse", partial(ParseRows, dataset, csv=True), out=row_schema(dataset), parallel=count["parse"]
    )
    filtered = parsed.apply("bloom", partial(KnownSensors, dataset, known), parallel=count["bloom"])
    names = dataset.numbers
    out = {"msg": int, by: str, "kind": str, **dict.fromkeys(names, str)}
    keyed = filtered.key_by(by)
    kalman = keyed.scan("kalman", WideKalman(names), parallel=count["kalman"])
    lines = kalman.key_by(by).scan("slr", WideRegression(names), out=out, parallel=count["slr"])
    moments = keyed.scan("som", WideMoment(names), out=out, parallel=count["som"])
    counts = filtered.key_by().scan("dac", WideDistinct(names, by), out=out, parallel=count["dac"])
    return [lines, moments, counts], kalman


def write_all(flow: Flow, name: str, streams: list[Stream], sink: Sink, parallel: int) -> None:
    """Write several streams of one schema to one sink, as one step."""
    schemas: list[Schema] = [stream.schema for stream in streams]
    inputs = tuple(Input(stream.step, stream.port, schema) for stream, schema in zip(streams, schemas, strict=True))
    flow.add(name, Write(sink), inputs=inputs, parallel=parallel)
