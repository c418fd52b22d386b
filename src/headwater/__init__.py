"""Headwater: stream processing for the space between sensors and cloud.

Read in this order: `flow` (what to compute), `operators` (what a step does to a batch), `engine` (who runs when), `io`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.flow import (
    Batch,
    Cell,
    Count,
    Flow,
    KeyedStream,
    Profile,
    Scan,
    Schema,
    Session,
    Sliding,
    StepProfile,
    Stream,
    Text,
    Tumbling,
    coalesce,
    col,
    greatest,
    least,
    when,
)
from headwater.flow import aggregates as agg

if TYPE_CHECKING:
    from headwater import engine as engine
    from headwater import io as io

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Cell",
    "Count",
    "Flow",
    "KeyedStream",
    "Profile",
    "Scan",
    "Schema",
    "Session",
    "Sliding",
    "StepProfile",
    "Stream",
    "Text",
    "Tumbling",
    "agg",
    "coalesce",
    "col",
    "engine",
    "greatest",
    "io",
    "least",
    "when",
]


def __getattr__(name: str) -> Any:
    if name in ("engine", "io"):  # loaded on use: describing a flow needs neither
        return import_module(f"headwater.{name}")
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
