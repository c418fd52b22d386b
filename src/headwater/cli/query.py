"""`headwater query TEXT`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headwater import engine
from headwater.cep import parse
from headwater.cep import syntax as s
from headwater.cep.automaton import events_of
from headwater.cep.plan import TYPES
from headwater.cli.parameters import JSON
from headwater.cli.run import exit_if_all_are_dead
from headwater.cli.screen import err, print_json, print_report
from headwater.errors import FlowError, QueryError, listed
from headwater.flow import Flow
from headwater.flow.stream import Stream
from headwater.io import Collect, Console
from headwater.io.file_format import file_named
from headwater.io.records import json_lines

_GUESSED = (".jsonl", ".json", ".ndjson", ".csv")  #: endings of files that say nothing of the types of their columns
_WORDS: dict[str, str] = {**{kind: word for word, kind in TYPES.items()}, "int": "long", "float32": "float"}


def query(
    text: Annotated[str, typer.Argument(help='such as "from levels[height < 150] select tank, height"')],
    input: Annotated[
        list[str],
        typer.Option("--input", "-i", help="FILE (.jsonl, .csv, .parquet), or STREAM=FILE if several are read"),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="the file to write, by its ending; without it, print results")
    ] = None,
    time: Annotated[str | None, typer.Option(help="the column that holds event time")] = None,
    cap: Annotated[int | None, typer.Option(help="partial matches to keep at most")] = None,
    as_json: JSON = False,
) -> None:
    """Run one query over files: patterns, sequences, windows and joins in the language of Siddhi."""
    flow = Flow("query")
    app = parse(text)
    files = _files(app, input)
    for stream, path in files.items():
        if output is not None and output.resolve() == Path(path).resolve():
            raise FlowError(f"--output {output} is the file that {stream} is read from; write to another")
        _read(flow, stream, Path(path), app, time)
    options: dict[str, Any] = {} if cap is None else {"cap": cap}
    try:
        results = flow.query("result", text, **options)
    except QueryError as error:
        is_of_types = {"any", "text"} & set(str(error).partition("\n")[0].split())
        about = _guessed(flow, app, files) if is_of_types else ""
        raise QueryError(
            f"{error}\n{about}" if about else str(error),
            line=error.line,
            column=error.column,
            offending=error.offending,
        ) from None
    matches = Collect()
    sink = matches if as_json else Console(limit=sys.maxsize, json=True)
    results.write("output", sink if output is None else file_named(output))
    report = engine.run(flow)
    if as_json:
        lines = [line for batch in matches.batches for line in json_lines(batch, results.schema)]
        print_json(report.to_json() | ({"records": list(map(msgspec.json.decode, lines))} if output is None else {}))
    elif output is not None:
        print_report(report)
    elif report.dead_letters:
        example = next((f", such as one at {letter['step']}: {letter['error']}" for letter in report.examples), "")
        err.print(f"{report.dead_letters:,} records became dead letters{example}", markup=False)
    unread = {letter["step"].removeprefix("read ") for letter in report.examples}
    if not as_json and (about := _guessed(flow, app, {name: path for name, path in files.items() if name in unread})):
        err.print(about, markup=False, highlight=False, soft_wrap=True)
    exit_if_all_are_dead(flow, report)


def _read(flow: Flow, stream: str, path: Path, app: s.App, time: str | None) -> Stream:
    defined = next((d for d in app.statements if isinstance(d, s.Define) and d.stream == stream), None)
    types = {column: TYPES[kind] for column, kind in defined.fields} if defined else None
    if time is None:
        return flow.read(stream, file_named(path, types))
    source = flow.read(f"read {stream}", file_named(path, types))
    if source.schema.get(time, "time") not in ("int", "time"):
        raise FlowError(
            f"--time {time}: in {path.name} this column is {source.schema[time]}; event time is in moments such as "
            "2026-11-18T08:00:00Z, all of the first ones, or in whole microseconds"
        )
    if source.schema.get(time) == "int":
        source = source.with_columns(f"time of {stream}", **{time: _column(time)})
    return source.event_time(stream, time)


def _guessed(flow: Flow, app: s.App, files: dict[str, str]) -> str:
    """Say of which files the columns are guessed, as what, and how to say what they are; nothing where all are defined."""
    defined = {each.stream for each in app.statements if isinstance(each, s.Define)}
    lines = []
    for stream, path in files.items():
        if stream in defined or Path(path).suffix not in _GUESSED:
            continue
        step = flow.steps.get(f"read {stream}") or flow.steps[stream]
        columns = dict(step.outputs["out"].fields)
        fields = ", ".join(f"{column} {_WORDS[kind]}" for column, kind in columns.items())
        mixed = [column for column, kind in columns.items() if kind == "any"]
        why = f" ({listed(mixed)}: values of several types)" if mixed else ""
        lines.append(
            f"the columns of {path} are guessed from its first lines{why}; where one is something else, say so before the "
            f"query: define stream {stream} ({fields});"
        )
    return "\n".join(lines)


def _column(name: str) -> Any:
    from headwater.flow import col

    return col[name].cast("time")


def _files(app: s.App, texts: list[str]) -> dict[str, str]:
    """Return the file of each stream that the text reads but does not make itself."""
    by_stream = dict(part.split("=", 1) for part in texts if "=" in part)
    plain = [part for part in texts if "=" not in part]
    unnamed = [name for name in _streams_read(app) if name not in by_stream]
    if not _streams_read(app):
        raise FlowError("the query reads only streams that it makes itself, in a circle; one has to come from a file")
    if len(plain) != len(unnamed):
        example = (unnamed or ["levels"])[0]
        raise FlowError(
            f"the query reads {listed(_streams_read(app))}; give each a file, such as --input {example}={example}.csv"
        )
    return {**dict(zip(unnamed, plain, strict=True)), **by_stream}


def _streams_read(app: s.App) -> list[str]:
    queries = [q for st in app.statements for q in (st.queries if isinstance(st, s.Partition) else (st,))]
    derived = {q.into for q in queries if isinstance(q, s.Query)}
    streams: dict[str, None] = {}
    for q in queries:
        match q:
            case s.Query(source=s.Source(stream=stream)):
                streams[stream] = None
            case s.Query(source=s.Join(left=left, right=right)):
                streams |= {left.stream: None, right.stream: None}
            case s.Query(source=s.Chain(links=links)):
                streams |= dict.fromkeys(event.stream for event in events_of(links))
    return [stream for stream in streams if stream not in derived]
