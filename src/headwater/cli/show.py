"""`headwater show FLOW`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.locate import find_flow
from headwater.cli.parameters import FLOW, JSON
from headwater.cli.plugins import spark_job
from headwater.cli.screen import console, print_json
from headwater.cli.writable import check_file
from headwater.errors import FlowError, listed
from headwater.flow import Flow, draw

_FORMS = {"tree": draw.tree, "mermaid": draw.mermaid, "svg": draw.svg}


def show(
    flow: FLOW,
    form: Annotated[str, typer.Option(help=f"one of {', '.join(_FORMS)}")] = "tree",
    output: Annotated[Path | None, typer.Option(help="write the picture to this file")] = None,
    on: Annotated[
        str | None, typer.Option(help="spark: say how the flow would run there, in which stages and why")
    ] = None,
    meaning: Annotated[
        str | None,
        typer.Option(help="with --on spark: by whose rules the first steps run, headwater's [default] or spark's"),
    ] = None,
    guarantees: Annotated[
        bool,
        typer.Option(
            "--guarantees", help="say what holds at each sink after a kill, for a run that goes on from a checkpoint"
        ),
    ] = False,
    as_json: JSON = False,
) -> None:
    """Draw a flow: as a text tree, as Mermaid or as SVG; or describe it as JSON."""
    if form not in _FORMS:
        raise FlowError(f"unknown form {form!r}; forms are {listed(_FORMS)}")
    check_file("--output", output)
    if on not in (None, "spark"):
        raise FlowError(f"show can say how a flow runs on 'spark'; got {on!r}")
    if meaning is not None and on is None:
        raise FlowError("--meaning says how a flow runs on Spark; say --on spark too")
    if on is not None and (job := spark_job(flow)):
        print_json({"flow": flow, "stages": [], "why": job.about}) if as_json else typer.echo(job.about)
        return
    dataflow = find_flow(flow)
    dataflow.check()
    if guarantees:
        _show_guarantees(dataflow, as_json)
        return
    if on is not None:
        _show_stages(dataflow, as_json, meaning or "headwater")
        return
    if as_json:
        print_json(dataflow.to_json())
        return
    picture = _FORMS[form](dataflow)
    if output is not None:
        output.write_text(picture + "\n")
        console.print(f"wrote {output}")
    else:
        typer.echo(picture)


def _show_guarantees(flow: Flow, as_json: bool) -> None:
    from headwater.flow.guarantees import guarantees

    results = guarantees(flow)
    if as_json:
        print_json({"flow": flow.name, "sinks": [each.to_json() for each in results]})
        return
    for each in results:
        typer.echo(f"{each.sink}: {each.holds}")
        for link in each.weakest:
            typer.echo(f"  {link}")


def _show_stages(flow: Flow, as_json: bool, meaning: Any) -> None:
    from headwater.spark.explain import explained, explanation_text
    from headwater.spark.options import check_meaning

    check_meaning(meaning)
    answer = explained(flow, meaning=meaning)
    if as_json:
        print_json(answer)
    else:
        typer.echo(explanation_text(answer))
