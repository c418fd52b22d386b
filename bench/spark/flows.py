"""The flows that the handwritten programs are compared with, as `headwater run flows.py:etl --on spark` runs them.

They read what `INPUT` names in the environment, and write to `OUTPUT`: from text to JSON, from Parquet to a table.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from headwater.flow import Flow
from headwater.flow.endpoints import Sink, Source
from headwater.io import Parquet, SparkTable
from headwater_bench.riot.etl import etl as build_etl
from headwater_bench.riot.pred import pred as build_pred
from headwater_bench.riot.sources import MessageFile
from headwater_bench.riot.stats import stats as build_stats


def etl() -> Flow:
    """Return ETL."""
    notes = json.loads(Path(os.environ["NOTES"]).read_text())
    return build_etl(_source(), notes={name: tuple(told) for name, told in notes.items()}, wide=True, publish=_sink())


def stats() -> Flow:
    """Return STATS."""
    return build_stats(_source(), publish=_sink())


def pred() -> Flow:
    """Return PRED."""
    return build_pred(_source(), publish=_sink())


def _source() -> Source:
    path = os.environ["INPUT"]
    return Parquet(path) if path.endswith(".parquet") else MessageFile(path)


def _sink() -> Sink:
    return SparkTable(os.environ["OUTPUT"], form="parquet" if os.environ["INPUT"].endswith(".parquet") else "json")
