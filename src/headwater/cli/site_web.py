"""`--web` of commands about sites and plans: the options, and the dashboard beside what they run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.errors import RunError

if TYPE_CHECKING:
    from headwater.deploy.api.plans import Plans
    from headwater.deploy.coordinator.state import StateFolder
    from headwater.net.net import Net

LISTEN = "127.0.0.1:8472"  #: another than that of flows: both may run on one machine
PLAN_LISTEN = "127.0.0.1:8473"  #: and so may plans beside sites
TOKEN = "dashboard-token"  #: in the state folder
Web = Annotated[bool, typer.Option("--web", help="open a dashboard too: pages for a browser")]
_AT = "with --web: address and port of the dashboard [default: {}]"
WebListen = Annotated[str | None, typer.Option(help=_AT.format(LISTEN))]
PlanWebListen = Annotated[str | None, typer.Option(help=_AT.format(PLAN_LISTEN))]


def check_dashboard(web: bool, listen: str | None, usual: str) -> str:
    """Return where a dashboard listens; refuse, before anything runs, one that could not be."""
    if web:
        from headwater.cli.web import check_web

        check_web(listen or usual)
    elif listen is not None:
        raise RunError("--web-listen says where the dashboard is, and means nothing without --web")
    return listen or usual


def site_dashboard(
    web: bool,
    listen: str,
    folder: StateFolder,
    net: Net | None = None,
    plans: Callable[[], Plans | None] = lambda: None,
) -> AbstractContextManager[None]:
    """Have the sites of a state folder shown by a dashboard, with plans, if that is wanted, while the context lasts."""
    if not web:
        return nullcontext()
    from headwater.cli.web import dashboard_of_answers
    from headwater.deploy.api.routes import Answers
    from headwater.deploy.api.sites import Sites
    from headwater.serve.home import token_of

    folder.identity()  # makes the folder
    return dashboard_of_answers(
        Answers(Sites(folder, net), plans()), token_of(folder.path / TOKEN, must_exist=False), listen
    )
