"""`headwater takeover`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from headwater.cli.locate import find_flow
from headwater.cli.parameters import FLOW, JSON
from headwater.cli.rewire import rewire
from headwater.cli.screen import console, print_json, progress
from headwater.deploy.takeover import Runner, Takeover, take_over
from headwater.errors import RunError


def takeover(
    flow: FLOW,
    origin: Annotated[
        Path, typer.Option("--from", help="the checkpoint that a run was stopped with; it stays as it is")
    ],
    target: Annotated[
        Path, typer.Option("--to", help="a new folder, for the checkpoint that the other runner goes on from")
    ],
    on: Annotated[str | None, typer.Option(help="who goes on: spark or engine [default: the other one]")] = None,
    buckets: Annotated[
        int | None,
        typer.Option(help="into how many parts keys are spread on Spark [default: processors of this machine]"),
    ] = None,
    was: Annotated[
        str | None,
        typer.Option(
            help="the flow as it was when the checkpoint was made, where steps were added, removed or renamed"
        ),
    ] = None,
    renamed: Annotated[
        list[str] | None, typer.Option(help="with --was: what a step is called now, OLD=NEW; as often as need be")
    ] = None,
    allow_dropped_state: Annotated[
        bool, typer.Option("--allow-dropped-state", help="with --was: state that no step has any more may be lost")
    ] = False,
    input: Annotated[list[str] | None, typer.Option(help="as the run was given it: NAME=FILE")] = None,
    output: Annotated[Path | None, typer.Option(help="as the run was given it")] = None,
    rate: Annotated[float | None, typer.Option(help="as the run was given it")] = None,
    as_json: JSON = False,
) -> None:
    """Turn a checkpoint of the engine into one that Spark goes on from, or the other way round.

    State by key, windows, event time, how far sources were read and what sinks hold go along: the two runs together give
    what one undisturbed run does. What cannot go along is told, and nothing is written then. Stop the run first.
    """
    dataflow = rewire(find_flow(flow), inputs=input, output=output, rate=rate)
    with progress("moving the checkpoint"):
        result = take_over(
            dataflow,
            origin,
            target,
            on=cast(Runner | None, on),
            buckets=buckets,
            was=None if was is None else rewire(find_flow(was), inputs=input, output=output, rate=rate),
            renamed=dict(_pair(each) for each in renamed or []),
            allow_dropped_state=allow_dropped_state,
        )
    if as_json:
        print_json(asdict(result))
    else:
        _print(result, flow)


def _pair(text: str) -> tuple[str, str]:
    before, equals, now = text.partition("=")
    if not (before and equals and now):
        raise RunError(f"--renamed is OLD=NEW, what a step was called and what it is called now; got {text!r}")
    return before, now


def _print(result: Takeover, flow: str) -> None:
    for source, position in result.positions.items():
        console.print(f"source {source} was read up to {position}", markup=False, highlight=False)
    for step, size in result.state_bytes.items():
        console.print(f"step {step} keeps {size:,} bytes", markup=False, highlight=False)
    for sink, count in result.waiting.items():
        console.print(f"{count:,} records wait for sink {sink}", markup=False, highlight=False)
    on = "--on spark " if result.on == "spark" else ""
    console.print(
        f"go on with: headwater run {flow} {on}--checkpoint {result.target}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
