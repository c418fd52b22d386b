"""`headwater link cut|mend`."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.parameters import JSON
from headwater.cli.screen import print_json
from headwater.cli.sites import SITES, STATE, Coordinators
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.local.cuts import CutLink, Cuts
from headwater.flow.duration import microseconds_of

app = typer.Typer(
    help="Cut links between the sites that `headwater up` runs, and mend them: does the flow go on?",
    no_args_is_help=True,
)

_Other = Annotated[
    str | None, typer.Argument(help="the other site, or 'coordinator' [default: all sites and the coordinator]")
]


@app.command()
def cut(
    site: Annotated[str, typer.Argument(help="a site that headwater up runs")],
    other: _Other = None,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="tell each end that the other has hung up; without it, all that is said vanishes"),
    ] = False,
    lasting: Annotated[str | None, typer.Option("--for", help="mend it after so long, such as 30s")] = None,
    state: Coordinators = STATE,
    as_json: JSON = False,
) -> None:
    """Have a link carry nothing, until it is mended; the processes at both ends live on.

    Links can be cut where sites have networks of their own: as root, and without --no-namespaces.
    """
    for_s = None if lasting is None else microseconds_of("--for", lasting) / 1e6
    _show(_cuts(state).cut(site, other, "reset" if reset else "silent", for_s), as_json=as_json)


@app.command()
def mend(
    site: Annotated[str | None, typer.Argument(help="a site of which a link was cut [default: all]")] = None,
    other: _Other = None,
    state: Coordinators = STATE,
    as_json: JSON = False,
) -> None:
    """Have links that were cut carry again what they are given."""
    _show(_cuts(state).mend(site, other), as_json=as_json)


def _cuts(state: Coordinators) -> Cuts:
    return Cuts(StateFolder(state).path / SITES)


def _show(cut: list[CutLink], *, as_json: bool) -> None:
    if as_json:
        print_json({"cut": [{"one": each.one, "other": each.other, "how": each.how} for each in cut]})
        return
    for each in cut:
        typer.echo(f"{each.one} - {each.other}: {each.how}")
    if not cut:
        typer.echo("no link is cut")
