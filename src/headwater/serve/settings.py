"""What can be chosen for a flow of a folder: `levels.toml` beside `levels.py`. Every key has a default that works."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import FlowError, suggestion

SUFFIX = ".toml"


class AddedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query that a flow answers beside what its file says."""

    query: str
    output: str  #: the file that matches are written to, as JSON Lines
    step: str = ""  #: whose records are called `stream` in the query, where its own name is no word of the language


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one flow is served; the words are those of `headwater run`."""

    flow: str = ""  #: which one, where the file has several
    start: bool = True  #: whether it is started by itself; else by the API alone
    on: str = "engine"  #: engine, threads or spark
    inputs: dict[str, str] = {}  #: files that are read in place of sources, by name
    output: str | None = None  #: a folder for files that are written in place of all sinks
    rate: float | None = None  #: the records of sources at so many per second
    checkpoint: bool = True  #: whether it is kept how far the flow has come
    every: str | None = None  #: how often
    allow_dropped_state: bool = False
    dead: bool = True  #: whether dead letters are kept, to be looked at and replayed
    promise: str | None = None  #: a rate such as 20000/s; the flow's own contract by default
    within: str | None = None
    above: str | None = None
    burst: float | None = None
    best_effort: bool = False
    profile: str | None = None  #: a file of `headwater profile --contract`: what the steps need; measured without one
    trial: bool = True  #: whether what was promised is tried for some seconds before the flow starts
    import_within: float = (
        120.0  #: seconds that importing the file may take before its process is ended, and started again
    )
    stop_within: float = 30.0  #: seconds that stopping may take before what is left is given up
    master: str | None = None  #: where Spark runs
    conf: dict[str, str] = {}  #: Spark's own settings
    queries: dict[str, AddedQuery] = {}  #: that are added to the flow, by name
    portable: bool = False  #: on Spark: whether it is kept as the engine does while it stands still, to go on anywhere
    #: other options of the engine: policy, workers, lanes, linger, when_full, queue_records, queue_bytes, hang, on_hang …
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for name in ("import_within", "stop_within"):
            value = getattr(self, name)
            if not 0 < value <= 3600:
                raise ValueError(f"{name} is a number of seconds, above 0 and up to 3600; got {value:g}")


def settings_beside(file: Path) -> Path:
    """Return where the settings of a flow's file would be."""
    return file.with_suffix(SUFFIX)


def read_settings(path: Path) -> Settings:
    """Return the settings of a file, all of them defaults where there is none; FlowError says what is wrong in it."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise FlowError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FlowError(f"{path} is no TOML: {error}") from None
    fields = Settings.__struct_fields__
    for name in values:
        if name not in fields:
            raise FlowError(
                f"{path} has a key {name!r}, which is none of {', '.join(fields)}{suggestion(name, fields)}"
            )
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise FlowError(f"{path}: {error}") from None
