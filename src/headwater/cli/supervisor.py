"""`headwater supervisor`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from headwater.cli.screen import err
from headwater.rate.grade import grade_here
from headwater.rate.home import folder
from headwater.rate.supervisor import gid_of, serve


def supervisor(
    group: Annotated[
        str | None,
        typer.Option(help="whose members may ask for promises; without one, only whoever runs this, and root"),
    ] = None,
) -> None:
    """Keep the ledger of promised rates for this machine, until stopped; root does, in a service.

    Everybody may look (headwater status), and members of the group may promise rates to their flows, which are then
    protected as root's are. Without one at work, a promise starts a supervisor for itself and its user alone. A supervisor
    that is stopped, or killed, and started again finds its lanes.
    """
    if group is not None:
        gid_of(group)
    home, grade = folder(), grade_here()
    whom = "its own user" if group is None else f"its own user and group {group}"
    err.print(f"supervisor in {home} for {whom}; grade {grade.name}: {grade.how}", highlight=False)
    asyncio.run(serve(home, grade=grade, is_open=True, group=group))
