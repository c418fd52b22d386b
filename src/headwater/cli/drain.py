"""`headwater drain SITE`."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.move import Within, run_move
from headwater.cli.parameters import JSON
from headwater.cli.screen import print_json
from headwater.cli.sites import STATE, Coordinators, print_sites
from headwater.deploy.control.messages import Ask
from headwater.deploy.coordinator.asking import ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.errors import RunError


def drain(
    site: Annotated[str, typer.Argument(help="the site that is to run nothing but what cannot be elsewhere")],
    to: Annotated[str, typer.Option(help="the site that takes its steps [default: the policy chooses]")] = "",
    again: Annotated[
        bool, typer.Option("--open", help="let the policy use the site again that it was told to leave")
    ] = False,
    state: Coordinators = STATE,
    within: Within = "60s",
    as_json: JSON = False,
) -> None:
    """Move every step of a site elsewhere that can be; sinks stay, and most sources. See `headwater move`.

    Without --to the policy of the flow chooses where to, and leaves the site alone until `--open`.
    """
    if again:
        if to:
            raise RunError("--open lets the policy use the site again, and moves nothing; leave out --to")
        document = ask(StateFolder(state), Ask("open", site=site))
        print_json(document) if as_json else print_sites(document)
        return
    run_move(StateFolder(state), Ask("drain", [site], to), within, as_json=as_json)
