"""ETL: parse, filter, interpolate, join, annotate, insert into a table, publish as SenML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from headwater.data.batch import Batch
from headwater.data.column import Text
from headwater.flow import Flow
from headwater.flow.endpoints import Sink, Source
from headwater.flow.stream import Stream
from headwater.io import Discard
from headwater.steps.bloom import BloomFilter
from headwater_bench.riot.datasets import CITY, Dataset
from headwater_bench.riot.filters import BloomCheck, RangeFilter, known_ids
from headwater_bench.riot.instances import counted
from headwater_bench.riot.notes import notes_of
from headwater_bench.riot.parse import ParseObservations, ParseRows, observation_schema, row_schema
from headwater_bench.riot.rows import Annotate, JoinObservations, WriteSenml
from headwater_bench.riot.scans import Interpolate
from headwater_bench.riot.wide import NanToNull, WideBloom, WideInterpolate, WideRange

#: How many instances of each step EdgeWise ran.
INSTANCES = {"parse": 1, "range": 1, "bloom": 1, "interpolate": 1, "join": 1, "annotate": 1} | {
    "insert": 1,
    "senml": 1,
    "publish": 2,
}


def etl(
    source: Source,
    *,
    dataset: Dataset = CITY,
    publish: Sink | None = None,
    insert: Sink | None = None,
    notes: Mapping[str, tuple[str, ...]] | None = None,
    wide: bool = False,
    instances: Mapping[str, int] | None = None,
) -> Flow:
    """Build the flow: each message becomes one record for each observation until they are joined again.

    With `wide` it stays one row, and there is nothing to join; what comes out is the same.
    `notes` says what is known of each sensor; without it, the generated sensors and the benchmark's are
    known.
    """
    count = counted(INSTANCES, instances)
    note_of = notes_of(dataset, generated_ids(dataset)) if notes is None else notes
    flow = Flow("etl")
    messages = flow.read("messages", source)
    rows = row_schema(dataset)
    clean = _wide if wide else _tall
    joined = clean(messages, dataset, known_ids(Text.of(note_of)), count)
    annotated = joined.apply(
        "annotate",
        partial(Annotate, dataset, note_of),
        out=rows.with_fields(dict.fromkeys(dataset.notes, str)),
        parallel=count["annotate"],
    )
    annotated.write("insert", insert or Discard(), parallel=count["insert"])
    records = annotated.map_batches(
        "senml", WriteSenml(dataset), out={"msg": int, "senml": str}, parallel=count["senml"]
    )
    records.write("publish", publish or Discard(), parallel=count["publish"])
    return flow


def _tall(messages: Stream, dataset: Dataset, known: BloomFilter, count: Mapping[str, int]) -> Stream:
    parsed = messages.apply(
        "parse",
        partial(ParseObservations, dataset, dataset.observed),
        out=observation_schema(dataset),
        parallel=count["parse"],
    )
    ranged = parsed.map_batches("range", RangeFilter(dataset), parallel=count["range"])
    filtered = ranged.map_batches("bloom", BloomCheck(dataset, known), parallel=count["bloom"])
    if dataset.interpolate:
        keyed = filtered.key_by(dataset.id, "obs")
        filled = keyed.scan("interpolate", Interpolate(dataset.interpolate), parallel=count["interpolate"])
    else:
        filled = filtered.map_batches("interpolate", _unchanged, parallel=count["interpolate"])
    return filled.key_by("msg", of=dataset.id).apply(
        "join", partial(JoinObservations, dataset), out=row_schema(dataset), parallel=count["join"]
    )


def _wide(messages: Stream, dataset: Dataset, known: BloomFilter, count: Mapping[str, int]) -> Stream:
    parsed = messages.apply("parse", partial(ParseRows, dataset), out=row_schema(dataset), parallel=count["parse"])
    ranged = parsed.map_batches("range", WideRange(dataset), parallel=count["range"])
    filtered = ranged.map_batches("bloom", WideBloom(dataset, known), parallel=count["bloom"])
    if not dataset.interpolate:
        return filtered.map_batches("interpolate", NanToNull(dataset), parallel=count["interpolate"])
    keyed = filtered.key_by(dataset.id)
    return keyed.scan("interpolate", WideInterpolate(dataset), parallel=count["interpolate"])


def _unchanged(batch: Batch) -> Batch:
    return batch


def generated_ids(dataset: Dataset) -> Text:
    """Return the ids of the sensors that the generator of a data set makes up."""
    from headwater_bench.riot.generate import stream

    return stream(dataset.name).ids
