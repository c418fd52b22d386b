"""What the commands for sites share: where a coordinator's state is, and how a deployment is shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from headwater.cli.screen import console
from headwater.deploy.coordinator.stages import stages_text
from headwater.deploy.policies.policy_state import Decision
from headwater.deploy.policies.telling import told, told_came, told_measured
from headwater.errors import one_line

STATE = Path(".headwater", "deploy")  #: where nothing else is said
SITES = "sites"  #: the folder in a state folder for the sites that `headwater up` starts, which has it while it runs
Coordinators = Annotated[Path, typer.Option("--state", help="the state folder of the coordinator")]


def print_sites(document: dict[str, Any]) -> None:
    """Print what a coordinator says of its flow and of all sites, or why none says anything."""
    flow = document["flow"]
    headline = "nothing is deployed" if flow is None else f"flow '{flow['name']}' is {flow['phase']} ({flow['id']})"
    console.print(headline, markup=False, highlight=False)
    if "why" in document:
        console.print(document["why"], markup=False, highlight=False)
        return
    sites = document["sites"]
    figures = {name: figure for name, figure in _FIGURES.items() if any(figure(site) for site in sites)}
    table = Table(header_style="bold")
    for name in ("site", "state", "steps", "in", "out", "restarts", *figures, "why"):
        table.add_column(name, justify="left" if name in ("site", "state", "steps", "why") else "right")
    for site in sites:
        counts = [f"{site.get(name, 0):,}" for name in ("records_in", "records_out", "restarts")]
        values = [figure(site) for figure in figures.values()]
        cells = (_name(site), site["state"], ", ".join(site["steps"]), *counts, *values, one_line(site["why"]))
        table.add_row(*cells)
    console.print(table)
    for site in sites:
        if causes := (site.get("promise") or {}).get("causes"):
            text = "; ".join(f"{count:,} broken: {cause}" for cause, count in causes.items())
            console.print(f"windows at '{site['name']}': {text}", markup=False, highlight=False)
    if flow is not None and flow.get("moves"):
        _print_move(flow["moves"][-1])
    if flow is not None and flow.get("policy"):
        _print_policy(flow["policy"])


def _print_move(move: dict[str, Any]) -> None:
    """Print the last move, and where its time went."""
    steps = ", ".join(f"{step}: {one} → {other}" for step, (one, other) in move["steps"].items())
    outcome = f": {move['undone']}" if move["undone"] else stages_text(move["stages_s"])
    at = time.strftime("%H:%M:%S", time.localtime(move["at_s"]))
    console.print(f"last move, at {at}: {steps}; {move['state']}{outcome}", markup=False, highlight=False)


def _print_policy(policy: dict[str, Any]) -> None:
    promise = f", promised {policy['contract']}" if policy["contract"] else ""
    lines = [f"policy {policy['name']}{promise}: {policy['moves']} moves"]
    lines += [f"waits: {policy['waits']}"] if policy["waits"] else []
    if policy["held"]:
        fixed = ", ".join(f"{step} at {at}" for step, at in policy["held"].items())
        lines.append(f"moved by hand, and stays: {fixed}; headwater move STEP… --open lets the policy have it")
    for each in policy["decisions"]:
        decision = msgspec.convert(each, Decision)
        lines.append(f"{time.strftime('%H:%M:%S', time.localtime(decision.at_s))}  {told(decision)}")
        lines += [f"          {told_came(decision)}"] if decision.came is not None else []
        lines += [f"          {measurement}"] if (measurement := told_measured(decision)) else []
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _name(site: dict[str, Any]) -> str:
    """Return what a site is called, with what runs its part where that is not one process of the engine's."""
    if site.get("kind") == "spark":
        return f"{site['name']} (Spark)"
    return f"{site['name']} ({site['lanes']} lanes)" if site.get("lanes", 1) > 1 else str(site["name"])


def _load(site: dict[str, Any]) -> str:
    return f"{site['load']:.1f} of {site['cores']:g}" if site.get("load") is not None and "cores" in site else ""


def _cores_promised(site: dict[str, Any]) -> str:
    ledger = site.get("promised") or {}
    return f"{ledger['held']:.2f} of {ledger['capacity']:.2f}" if ledger.get("held") else ""


def _windows_kept(site: dict[str, Any]) -> str:
    own = site.get("promise")
    return "" if own is None else f"{own['kept']:,} of {own['kept'] + own['broken']:,}"


def _figure(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda site: "" if site.get(name) is None else f"{site[name]:g}"


#: columns of what sites report; one that no site says anything in is left out
_FIGURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "load": _load,
    "cores promised": _cores_promised,
    "windows kept": _windows_kept,
    "price": _figure("price"),
    "carbon": _figure("carbon"),
    "dropped": lambda site: f"{site['dropped']:,}" if site.get("dropped") else "",
}
