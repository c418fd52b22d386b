"""Headwater: stream processing for the space between sensors and cloud.

Read in this order: `flow` (what to compute), `operators` (what a step does to a batch), `engine` (who runs when), `io`.
The other packages, `hw.cep`, `hw.spark` …, are loaded when they are first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater import cep as cep
    from headwater import engine as engine
    from headwater import io as io
    from headwater import models as models
    from headwater import net as net
    from headwater import place as place
    from headwater import rate as rate
    from headwater import sim as sim
    from headwater import spark as spark
    from headwater import steps as steps
    from headwater.flow import (
        Batch,
        Cell,
        Contract,
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
        retry,
        when,
    )
    from headwater.flow import aggregates as agg

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Cell",
    "Contract",
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
    "retry",
    "when",
]


#: loaded on use: describing a flow needs none of them, and some need an extra
_PACKAGES = ("cep", "deploy", "engine", "io", "models", "net", "place", "rate", "sim", "spark", "steps")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"headwater.{name}")
    if name == "agg":
        value = import_module("headwater.flow.aggregates")
    elif name in __all__:
        value = getattr(import_module("headwater.flow"), name)
    else:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *__all__})
