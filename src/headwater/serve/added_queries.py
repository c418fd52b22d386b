"""Queries that are added to a flow by its settings: the file of the flow stays as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from headwater import io
from headwater.errors import FlowError, RunError, listed, suggestion
from headwater.flow.flow import Flow
from headwater.flow.stream import Stream
from headwater.serve.query import STREAM
from headwater.serve.settings import AddedQuery, read_settings

_writing = threading.Lock()


def with_queries(flow: Flow, queries: Mapping[str, AddedQuery]) -> None:
    """Add queries to a flow, each with a sink for its matches; FlowError or QueryError says what does not fit."""
    for name, query in queries.items():
        matches = flow.query(name, query.query, streams=_streams(flow, query.step))
        matches.write(f"{name} found", io.JsonLines(query.output))


def _streams(flow: Flow, step: str) -> dict[str, Stream]:
    if not step:
        return {}
    from headwater.cep.plan import time_of

    if step not in flow.steps:
        steps = list(flow.steps)
        raise FlowError(f"a query reads step {step!r}; steps are {listed(steps)}{suggestion(step, steps)}")
    return {STREAM: Stream(flow, step, time=time_of(flow, step))}


def check_name(name: str) -> None:
    """Refuse a name that could be no key, no step, and no part of the name of a file."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,39}", name):
        raise RunError(f"a query is named by a word of letters, digits and _, such as low_tanks; got {name[:60]!r}")


def add_to(settings: Path, name: str, query: AddedQuery) -> None:
    """Write a query behind what is in a file of settings, whole or not at all; all else in it stays as it is."""
    target = settings.resolve()
    new = target.with_name(f".{target.name}.new")
    with _writing:
        if name in read_settings(settings).queries:
            raise RunError(f"{settings.name} has a query {name!r} already; choose another name")
        try:
            text = target.read_text("utf-8") if target.exists() else ""
            gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
            new.write_text(f"{text}{gap}{toml_of(name, query)}", "utf-8")
            if text:
                shutil.copymode(target, new)
            os.replace(new, target)
        except OSError as error:
            raise RunError(f"cannot write {target}: {error.strerror}") from None


def toml_of(name: str, query: AddedQuery) -> str:
    """Write a query as settings have it.

    >>> print(toml_of("low", AddedQuery("from levels select tank", "low.jsonl")), end="")
    [queries.low]
    query = '''
    from levels select tank
    '''
    output = "low.jsonl"
    """
    lines = [f"[queries.{name}]", f"query = {_text(query.query)}", f"output = {_line(query.output)}"]
    if query.step:
        lines.append(f"step = {_line(query.step)}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """Write text as TOML: as it is over several lines, where nothing in it means anything else there."""
    plain = all(char.isprintable() or char in "\n\t" for char in value)
    if plain and "'''" not in value:
        return f"'''\n{value}\n'''"
    return _line(value)


def _line(value: str) -> str:
    """Write text as a TOML string of one line: JSON has the same escapes, but for one sign."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
