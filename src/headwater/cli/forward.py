"""`--forward`: has the records of a flow's network sinks wait on disk, by settings that are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from headwater.errors import FlowError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.endpoints import is_remote, writes_in_parts
from headwater.flow.steps import Kind, Write
from headwater.io import forward

_SETTINGS = ("bytes", "age", "full", "order", "rate", "priority", "linger")


def with_forwarding(flow: Flow, text: str, *, checkpoint: bool) -> tuple[Flow, list[str]]:
    """Return the flow with a log on disk before each sink that has a network behind it; and the sinks for which that means
    nothing, since with a checkpoint they keep their parts beside it, and deliver each once.
    """
    folder, settings = parse(text)
    kinds: dict[str, Kind] = {}
    others = []
    for name, step in flow.steps.items():
        if not isinstance(step.kind, Write) or not is_remote(step.kind.sink):
            continue
        if checkpoint and writes_in_parts(step.kind.sink):
            others.append(name)
        else:
            kinds[name] = Write(forward(step.kind.sink, folder / quote(name, safe=" "), **settings))
    if not kinds and not others:
        raise FlowError(
            f"--forward is for sinks with a network behind them, and flow {flow.name!r} has none; a sink of your own is "
            "forwarded by io.forward(sink, folder)"
        )
    return flow.replaced(kinds) if kinds else flow, others


def parse(text: str) -> tuple[Path, dict[str, Any]]:
    """Read a folder and settings.

    >>> parse("up,bytes=1 GB,full=drop oldest")
    (PosixPath('up'), {'bytes': '1 GB', 'full': 'drop oldest'})
    """
    folder, *words = text.split(",")
    settings: dict[str, Any] = {}
    if not folder.strip() or "=" in folder:
        raise FlowError(f"--forward begins with a folder, such as 'up,bytes=1 GB,age=7 days'; got {text!r}")
    for each in words:
        name, equals, value = (part.strip() for part in each.partition("="))
        if not equals or name not in _SETTINGS:
            options = f"it takes {listed(_SETTINGS)}, each as NAME=VALUE"
            raise FlowError(f"--forward does not know {each.strip()!r}; {options}{suggestion(name, _SETTINGS)}")
        settings[name] = value
    return Path(folder), settings
