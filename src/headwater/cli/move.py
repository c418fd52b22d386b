"""`headwater move STEP|FLOW SITE`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from headwater.cli.parameters import JSON
from headwater.cli.screen import print_json, progress
from headwater.cli.sites import STATE, Coordinators, print_sites
from headwater.deploy.control.messages import Ask
from headwater.deploy.coordinator.asking import ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.errors import RunError
from headwater.flow.duration import microseconds_of

Within = Annotated[str, typer.Option(help="how long the move may take before the flow goes on as it was")]


def move(
    steps: Annotated[
        list[str],
        typer.Argument(
            metavar="STEP…|FLOW SITE", help="steps of the flow, or by its own name all that can move, and where to"
        ),
    ],
    again: Annotated[
        bool,
        typer.Option("--open", help="let the policy move these steps again; no site is named, and nothing moves now"),
    ] = False,
    state: Coordinators = STATE,
    within: Within = "60s",
    as_json: JSON = False,
) -> None:
    """Move steps of the flow that is deployed to another site, with their state; nothing is lost or comes twice.

    While the flow runs, a process is made ready for every new part. Then the parts stop whose steps come or go, with a
    checkpoint, the flow is cut anew, and they go on: for that moment, records for them wait where they come from. All other
    parts run on. Where the flow has a policy, it leaves steps where they were moved to, until `--open`.
    """
    if again:
        document = ask(StateFolder(state), Ask("open", steps))
        print_json(document) if as_json else print_sites(document)
        return
    *names, site = steps
    if not names:
        raise RunError(f"headwater move takes one or more steps and a site; got only {site!r}")
    run_move(StateFolder(state), Ask("move", names, site), within, as_json=as_json)


def run_move(folder: StateFolder, request: Ask, within: str, *, as_json: bool) -> None:
    """Have a coordinator move steps, wait until that is done, and show what came of it; RunError if it came to nothing."""
    until_s = time.monotonic() + microseconds_of("--within", within) / 1e6
    with progress("moving"):
        document = ask(folder, request)
        while document["flow"]["moving"]:
            if time.monotonic() > until_s:
                ask(folder, Ask("undo"))
                until_s = float("inf")
            time.sleep(0.05)
            document = ask(folder, Ask("status"))
    last: dict[str, Any] = document["flow"]["moved"]
    if as_json:
        print_json(document)
    if last["why"]:
        raise RunError(f"the move came to nothing, and the flow goes on as it was: {last['why']}")
    if not as_json:
        print_sites(document)
        gap = "" if last["gap_s"] is None else f" after {1000 * last['gap_s']:,.0f} ms"
        typer.echo(f"all parts were at work again{gap}")
