"""Runs a flow on other data: `--input`, `--output` and `--rate` put other sources and sinks in place of the flow's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.errors import FlowError, listed
from headwater.flow import Flow, Schema
from headwater.flow.endpoints import Source, at_rate, from_file
from headwater.flow.steps import Kind, Read, Write
from headwater.io import Csv, JsonLines, Kafka, Mqtt, Parquet, Replay, SparkTable, Webhook
from headwater.io.urls import path_in

_BY_SUFFIX: dict[str, Any] = {".jsonl": JsonLines, ".ndjson": JsonLines, ".csv": Csv, ".parquet": Parquet}


def rewire(
    flow: Flow,
    *,
    inputs: list[str] | None = None,
    output: str | Path | None = None,
    rate: float | None = None,
    may_come: bool = False,
    loop: bool = True,
) -> Flow:
    """Return the flow with its sources and sinks replaced as the options say.

    A file that is to be read and is not there is an error, unless it `may_come` later. With `loop`, a source that is
    replayed at a rate starts over at its end.
    """
    kinds: dict[str, Kind] = {}
    for text in inputs or []:
        source, path = source_of(flow, text, "--input NAME=FILE")
        if source in kinds:
            raise FlowError(f"--input gives source {source!r} twice; a source reads one file")
        own = flow.steps[source].kind
        assert isinstance(own, Read)
        kinds[source] = Read(_source_at(own, path, flow.steps[source].outputs["out"], may_come))
    if rate is not None:
        for name, step in flow.steps.items():
            kind = kinds.get(name, step.kind)
            if isinstance(kind, Read):
                kinds[name] = Read(_at_rate(kind.source, rate, loop))
    if output is not None:
        sinks = [step for step in flow.steps.values() if step.is_sink]
        folder = path_in(output)
        if folder is not None:
            _make(folder)
        for step in sinks:
            kinds[step.name] = Write(_sink_at(folder or str(output), step.name, step.inputs[0].schema))
    return flow.replaced(kinds) if kinds else flow


def _at_rate(source: Source, rate: float, loop: bool) -> Source:
    """Return the same records at another rate: by what makes them, or replayed."""
    if isinstance(source, Mqtt | Kafka | Webhook) or getattr(source, "follow", False):
        raise FlowError(
            f"--rate replays what a source holds, and {source} has no end; leave it out, or give --input FILE"
        )
    return at_rate(source, rate) or Replay(source, rate, loop=loop)


def source_of(flow: Flow, text: str, option: str) -> tuple[str, str]:
    """Return which source an option is about, and what it says of it: NAME=VALUE, or of a single source the value."""
    sources = [name for name, step in flow.steps.items() if step.is_source]
    name, equals, path = text.partition("=")
    if not (path if equals else text):
        raise FlowError(f"{option.partition(' ')[0]} {text!r} names nothing to read; is it a variable that is not set?")
    if equals and name in sources:
        return name, path
    if len(sources) == 1 and (not equals or "/" in name or Path(text).exists()):  # a path may have such a sign in it
        return sources[0], text
    if equals:
        flow.check_source(name)
    raise FlowError(f"flow {flow.name!r} has sources {listed(sources)}; say which one as {option}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--output names a folder for the files of all sinks; cannot make {str(folder)!r}: {error.strerror}"
        raise FlowError(message) from error


def _source_at(kind: Read, address: str, schema: Schema, may_come: bool) -> Any:
    path = path_in(address)
    if path is None:
        return SparkTable(address, schema)
    own = from_file(kind.source, path)
    if own is None and path.suffix not in _BY_SUFFIX:
        raise FlowError(f"cannot tell the form of {str(path)!r} from its name; known endings are {listed(_BY_SUFFIX)}")
    if not (may_come or str(path) == "-" or getattr(own, "follow", False) or path.exists()):
        message = f"--input names {str(path)!r}: there is no such file; is the path right, seen from {Path.cwd()}?"
        raise FlowError(message)
    if own is not None:
        return own
    maker = _BY_SUFFIX[path.suffix]
    return maker(path) if maker is Parquet else maker(path, schema)


def _sink_at(folder: Path | str, name: str, schema: Schema) -> Any:
    """Write CSV where every column fits a cell, JSON Lines otherwise; at a URL into a folder for each sink."""
    stem = name.replace("/", "-").replace(" ", "_")
    objects = "any" in dict(schema.fields).values()
    if isinstance(folder, str):
        return SparkTable(f"{folder.rstrip('/')}/{stem}", form="json" if objects else "csv")
    if objects:
        return JsonLines(folder / f"{stem}.jsonl")
    return Csv(folder / f"{stem}.csv")
