"""What the commands for sites share: where a coordinator's state is, and how a deployment is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from headwater.cli.screen import console
from headwater.errors import one_line

STATE = Path(".headwater", "deploy")  #: where nothing else is said
Coordinators = Annotated[Path, typer.Option("--state", help="the state folder of the coordinator")]


def print_sites(document: dict[str, Any]) -> None:
    """Print what a coordinator says of its flow and of all sites, or why none says anything."""
    flow = document["flow"]
    told = "nothing is deployed" if flow is None else f"flow '{flow['name']}' is {flow['phase']} ({flow['id']})"
    console.print(told, markup=False, highlight=False)
    if "why" in document:
        console.print(document["why"], markup=False, highlight=False)
        return
    table = Table(header_style="bold")
    for name in ("site", "state", "steps", "in", "out", "restarts", "why"):
        table.add_column(name, justify="right" if name in ("in", "out", "restarts") else "left")
    for site in document["sites"]:
        counts = [f"{site.get(name, 0):,}" for name in ("records_in", "records_out", "restarts")]
        cells = (site["name"], site["state"], ", ".join(site["steps"]), *counts, one_line(site["why"]))
        table.add_row(*map(escape, cells))
    console.print(table)
