"""`headwater spark submit`."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.locate import resolve_flow
from headwater.cli.parameters import FLOW, JSON
from headwater.cli.rewire import rewire, source_of
from headwater.cli.screen import console, err, print_json
from headwater.cli.shipping import shipment
from headwater.cli.spark_options import (
    AVAILABLE_NOW,
    BACKFILL,
    BUCKETS,
    CONF,
    DURATION,
    HISTORY_ONLY,
    INPUT,
    MEANING,
    ORDER_BY,
    OUTPUT,
    PROMETHEUS,
    TARGET,
    UNTIL,
    check_history,
    parse_metrics_address,
    parse_settings,
)
from headwater.errors import RunError
from headwater.flow.duration import microseconds_of
from headwater.io.urls import path_in

app = typer.Typer(help="Hand flows to a Spark cluster.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Hand flows to a Spark cluster."""


@app.command()
def submit(
    flow: FLOW,
    master: Annotated[str, typer.Option(help="who runs it: yarn, k8s://https://host:6443 or spark://host:7077")],
    deploy_mode: Annotated[
        str, typer.Option(help="where the driver runs: client (here) or cluster (there; not on spark://)")
    ] = "client",
    environment: Annotated[
        Path | None, typer.Option(help="the Python that executors use, packed with venv-pack: FILE.tar.gz")
    ] = None,
    conf: CONF = None,
    input: INPUT = None,
    output: OUTPUT = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="keep here how far the run has come: a URL, or a folder that driver and executors see"),
    ] = None,
    meaning: MEANING = None,
    target: TARGET = None,
    every: Annotated[
        str | None, typer.Option(help="how often a micro-batch begins, at most [default: at once after the last]")
    ] = None,
    available_now: AVAILABLE_NOW = False,
    buckets: BUCKETS = None,
    backfill: BACKFILL = None,
    until: UNTIL = None,
    order_by: ORDER_BY = None,
    history_only: HISTORY_ONLY = False,
    duration: DURATION = None,
    prometheus: PROMETHEUS = None,
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
    every executor, or in the environment that is sent along. The program is `headwater run --on spark` with the options that
    are given here.
    """
    from headwater.spark.options import check_buckets, check_meaning
    from headwater.spark.submitting import check_driver, packed

    settings = parse_settings(conf or [])
    check_driver(master, deploy_mode, settings)
    for option, text in (("--for", duration), ("--target", target), ("--every", every)):
        if text is not None and not microseconds_of(option, text):
            raise RunError(f"{option} is a time above 0; got {text!r}")
    if meaning is not None:
        check_meaning(meaning)
    check_buckets(buckets)
    check_history(backfill, {"until": until, "order-by": order_by, "history-only": history_only})
    if backfill and checkpoint is None:
        raise RunError("--backfill is about checkpoints, and means nothing without --checkpoint DIR")
    if prometheus is not None:
        parse_metrics_address(prometheus)
    attribute, dataflow = resolve_flow(flow)
    is_here = deploy_mode == "client"
    inputs = [
        f"{source}={_place('--input', path, is_here)}"
        for source, path in (source_of(dataflow, argument, "--input NAME=FILE") for argument in input or [])
    ]
    if is_here:
        rewire(dataflow, inputs=inputs)  # which says what is wrong with them
    tables = [
        f"{source}={_table(table, is_here)}"
        for source, table in (source_of(dataflow, argument, "--backfill NAME=TABLE") for argument in backfill or [])
    ]
    reference, files = shipment(flow, attribute)
    options: dict[str, str | list[str] | bool | int | None] = {
        "input": inputs,
        "output": None if output is None else _place("--output", output, is_here),
        "checkpoint": None if checkpoint is None else _place("--checkpoint", checkpoint, is_here),
        "meaning": meaning,
        "target": target,
        "every": every,
        "available-now": available_now,
        "buckets": buckets,
        "backfill": tables,
        "until": until,
        "order-by": order_by,
        "history-only": history_only,
        "for": duration,
        "prometheus": prometheus,
    }
    package = packed(
        ["run", reference, "--on", "spark", "--json", *_words(options)],
        dataflow.name,
        folder or Path(f"{dataflow.name}.submit"),
        files=files,
        master=master,
        deploy_mode=deploy_mode,
        environment=environment,
        settings=settings,
    )
    if dry_run:
        if as_json:
            print_json(
                {
                    "command": package.command,
                    "main": str(package.main),
                    "modules": package.modules and str(package.modules),
                }
            )
        else:
            console.print(shlex.join(package.command), markup=False, highlight=False, soft_wrap=True)
        return
    from headwater.spark import java

    err.print(f"handing {dataflow.name} to {master}; what it says follows")
    environ = os.environ | {"JAVA_HOME": str(java.find().home)}
    code = subprocess.run(package.command, env=environ, check=False).returncode
    if code:
        raise typer.Exit(1)


def _place(option: str, text: str, is_here: bool) -> str:
    """Return a place as the driver finds it: a program that runs here may be started from another folder."""
    path = path_in(text)
    if path is None or path.is_absolute():
        return text
    if not text or not is_here:
        why = (
            "is it a variable that is not set?" if not text else "give a URL, or a path from / on that all machines see"
        )
        raise RunError(f"{option} {text!r}: a driver on the cluster has no such folder; {why}")
    return str(path.absolute())


def _table(text: str, is_here: bool) -> str:
    """Return a table of history as the driver finds it; one that is no file here may be a name that Spark knows."""
    path = path_in(text)
    return str(path.absolute()) if path is not None and is_here and path.exists() else text


def _words(options: dict[str, str | list[str] | bool | int | None]) -> list[str]:
    """Return options as they are typed."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(f"--{name}")
        elif isinstance(value, list):
            words += [word for each in value for word in (f"--{name}", each)]
        elif value is not None and value is not False:
            words += [f"--{name}", str(value)]
    return words
