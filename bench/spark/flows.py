"""The flows that the handwritten programs are compared with, as `headwater run flows.py:etl --on spark` runs them.

They read what `INPUT` names in the environment, and write to `OUTPUT`: from text to JSON, from Parquet or Kafka to a table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from headwater import col
from headwater.cores import whole_cores
from headwater.flow import Flow
from headwater.flow.endpoints import Sink, Source
from headwater.io import Kafka, Parquet, SparkTable
from headwater_bench.riot.etl import etl as build_etl
from headwater_bench.riot.pred import pred as build_pred
from headwater_bench.riot.sources import MessageFile
from headwater_bench.riot.stats import stats as build_stats


def etl() -> Flow:
    """Return ETL."""
    notes = json.loads(Path(os.environ["NOTES"]).read_text())
    sensors = {name: tuple(words) for name, words in notes.items()}
    return _reading(lambda source: build_etl(source, notes=sensors, wide=True, publish=_sink()))


def stats() -> Flow:
    """Return STATS."""
    return _reading(lambda source: build_stats(source, publish=_sink()))


def pred() -> Flow:
    """Return PRED."""
    return _reading(lambda source: build_pred(source, publish=_sink()))


def _reading(build: Callable[[Source], Flow]) -> Flow:
    path = os.environ["INPUT"]
    if not path.startswith("kafka:"):
        return build(Parquet(path) if path.endswith(".parquet") else MessageFile(path))
    servers, topic = path.removeprefix("kafka:").split("/")
    # what is a message's number elsewhere is here the key, as text
    numbers = {"minPartitions": str(whole_cores())}
    source = Kafka(servers, topic, {"message": str}, payload="text", key_column="number", options=numbers)
    flow = build(source)
    source_flow = Flow(flow.name)
    source_flow.read("topic", source).select("messages", "message", msg=col.number.cast(int))
    return Flow.of_steps(
        flow.name, [*source_flow.steps.values(), *(s for s in flow.steps.values() if s.name != "messages")]
    )


def _sink() -> Sink:
    return SparkTable(os.environ["OUTPUT"], form="json" if os.environ["INPUT"].endswith(".txt") else "parquet")
