"""`headwater spark submit`."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.locate import named_flow
from headwater.cli.run import FLOW, JSON, parsed_settings
from headwater.cli.screen import console, err, print_json
from headwater.cli.shipping import shipped
from headwater.flow.duration import microseconds_of

app = typer.Typer(help="Hand flows to a Spark cluster.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Hand flows to a Spark cluster."""


@app.command()
def submit(
    flow: FLOW,
    master: Annotated[str, typer.Option(help="who runs it: yarn, k8s://https://host:6443 or spark://host:7077")],
    deploy_mode: Annotated[
        str, typer.Option(help="where the driver runs: client (here) or cluster (there)")
    ] = "client",
    checkpoint: Annotated[
        str | None, typer.Option(help="keep here how far the run has come: a folder that driver and executors see")
    ] = None,
    environment: Annotated[
        Path | None, typer.Option(help="the Python that executors use, packed with venv-pack: FILE.tar.gz")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", "-c", help="a setting of Spark's, NAME=VALUE; as often as need be")
    ] = None,
    duration: Annotated[str | None, typer.Option("--for", help="stop reading after this long, such as 30s")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="where what is handed over is written [default: FLOW.submit]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="write it and print the command, but start nothing")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Pack a flow and hand it to spark-submit: for YARN, Kubernetes and standalone clusters.

    The driver's program, the flow's file and those beside it that it imports are packed; what else it imports must be on
    every executor, or in the environment that is sent along.
    """
    from headwater.spark.submitting import packed

    attribute, chosen = named_flow(flow)
    target, files = shipped(flow, attribute)
    seconds = microseconds_of("--for", duration) / 1e6 if duration else None
    made = packed(
        target,
        chosen.name,
        folder or Path(f"{chosen.name}.submit"),
        files=files,
        master=master,
        deploy_mode=deploy_mode,
        checkpoint=checkpoint,
        environment=environment,
        settings=parsed_settings(conf or []),
        options={"seconds": seconds},
    )
    if dry_run:
        if as_json:
            print_json({"command": made.command, "main": str(made.main), "modules": made.modules and str(made.modules)})
        else:
            console.print(shlex.join(made.command), markup=False, highlight=False, soft_wrap=True)
        return
    from headwater.spark import java

    err.print(f"handing {chosen.name} to {master}; what it says follows")
    environ = os.environ | {"JAVA_HOME": str(java.find().home)}
    code = subprocess.run(made.command, env=environ, check=False).returncode
    if code:
        raise typer.Exit(1)
