"""What the entry points of this package name."""

from __future__ import annotations

from headwater.cli.plugins import Bundle
from headwater_bench.cli.train import TRAIN
from headwater_bench.riot import flow_named

RIOT = Bundle(("etl", "stats", "stats-viz", "train", "pred"), flow_named, {"train": TRAIN})
