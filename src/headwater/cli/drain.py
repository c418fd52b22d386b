"""`headwater drain SITE`."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.move import Within, moved
from headwater.cli.run import JSON
from headwater.cli.sites import STATE, Coordinators
from headwater.deploy.control.messages import Ask
from headwater.deploy.coordinator.state import StateFolder


def drain(
    site: Annotated[str, typer.Argument(help="the site that is to run nothing but its sources and sinks")],
    to: Annotated[str, typer.Option(help="the site that takes its steps")],
    state: Coordinators = STATE,
    within: Within = "60s",
    as_json: JSON = False,
) -> None:
    """Move every step of a site elsewhere, but for sources and sinks, which stay; see `headwater move`."""
    moved(StateFolder(state), Ask("drain", [site], to), within, as_json=as_json)
