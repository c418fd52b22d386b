"""`headwater status`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from headwater.cli.parameters import JSON
from headwater.cli.screen import console, print_json
from headwater.cli.sites import STATE, print_sites
from headwater.errors import RateError, RunError, one_line
from headwater.rate import board
from headwater.rate.messages import Board, Lane
from headwater.serve.client import ask
from headwater.serve.home import note_in, servers


def status(
    state: Annotated[
        Path | None,
        typer.Option(
            help="of the server, or the coordinator of sites, with this state folder [default: of all servers]"
        ),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Show the flows of servers on this machine, and what is promised here: rates, cores, windows kept and broken.

    Servers (`headwater serve`) and the supervisor, which runs as long as there are promises, are found by the runtime folder
    (`HEADWATER_RUNTIME`; /run/headwater for root), servers of systemd by their state folder too; the coordinator of sites
    (`headwater deploy`) by its state folder, .headwater/deploy where none is named.
    """
    sites = _sites(state)
    if sites is not None and state is not None:
        print_json({"deployed": sites}) if as_json else print_sites(sites)
        return
    answers = _servers(state)
    promises, silent = _board()
    if as_json:
        ledger = {} if promises is None else msgspec.to_builtins(promises)
        why = {} if silent is None else {"error": str(silent)}
        print_json({"supervisor": promises is not None, **ledger, **why, "servers": answers, "deployed": sites})
    else:
        if sites is not None:
            print_sites(sites)
        for server in answers:
            _print_server(server)
        if promises is not None:
            _print(promises)
        elif silent is None:
            console.print("nothing is promised here: no supervisor runs")
    if silent is not None:
        raise silent


def _board() -> tuple[Board | None, RateError | None]:
    """Return what is promised, or why the supervisor does not tell: what servers and sites say is shown all the same."""
    try:
        return board(), None
    except RateError as error:
        return None, error


def _sites(state: Path | None) -> dict[str, Any] | None:
    """Return what a coordinator says of its flow and its sites; None where the folder is none of a coordinator's."""
    from headwater.deploy.coordinator.asking import NobodyError, ask, at_rest
    from headwater.deploy.coordinator.state import StateFolder

    folder = StateFolder(STATE if state is None else state)
    if not folder.exists:
        return None
    try:
        return ask(folder, "status")
    except NobodyError:
        document = at_rest(folder)
        return None if state is None and document["flow"] is None else document


def _servers(state: Path | None) -> list[dict[str, Any]]:
    """Return what each server says of its flows, or why it does not."""
    if state is not None:
        note = note_in(state)
        if note is None or not note.lives:
            raise RunError(f"no server runs with the state folder {str(state)!r}; headwater serve DIR starts one")
        notes = [note]
    else:
        notes = list(servers())
    answers = []
    for note in notes:
        answer: dict[str, Any] = {"url": note.url, "pid": note.pid, "folder": note.folder, "state": note.state}
        try:
            answer["flows"] = ask(note, "/api/v1/flows")
        except RunError as error:
            answer["error"] = str(error)
        answers.append(answer)
    return answers


def _print_server(server: dict[str, Any]) -> None:
    console.print(f"{server['folder']}, served at {server['url']} by process {server['pid']}", markup=False)
    if "error" in server:
        console.print(server["error"], markup=False)
        return
    table = Table(header_style="bold")
    for name in ("flow", "state", "for", "process", "restarts", "why"):
        table.add_column(name)
    for flow in server["flows"]:
        change = flow["change_refused"]
        why = flow["why"] if change is None else f"changed, but the old one runs on: {change}"
        pid = "" if flow["pid"] is None else str(flow["pid"])
        cells = (flow["name"], flow["state"], f"{flow['for_s']:,.0f} s", pid, str(flow["restarts"]), one_line(why))
        table.add_row(*cells)
    console.print(table)


def _print(promises: Board) -> None:
    reserved = promises.capacity - promises.left
    console.print(
        f"{reserved:.2f} of {promises.capacity:.2f} cores promised ({promises.cores:g} in all); "
        f"grade {promises.grade}: {promises.how}",
        highlight=False,
    )
    if promises.better:
        console.print(f"a better grade: {promises.better}", highlight=False, markup=False)
    table = Table(header_style="bold")
    table.add_column("flow")
    for name in ("process", "promised", "reserved", "used", "kept", "broken", "restarts", ""):
        table.add_column(name, justify="right")
    for lane in promises.lanes:
        table.add_row(
            lane.flow,
            str(lane.pid),
            str(lane.contract),
            f"{lane.cores:.2f}",
            f"{lane.used:.2f}",
            _windows_kept(lane),
            f"{lane.broken:,}",
            str(lane.restarts),
            _remark(lane),
        )
    console.print(table)


def _windows_kept(lane: Lane) -> str:
    """Say how many windows were kept, and which share of all that is: rounded down, so that 100 % means all."""
    windows = lane.kept + lane.broken
    return f"{lane.kept:,} ({math.floor(1000 * lane.kept / windows) / 10:g} %)" if windows else "0"


def _remark(lane: Lane) -> str:
    """Say what else there is to know of a lane."""
    if lane.down:
        return "died, starts again"
    remarks = [f"{lane.lanes} lanes"] if lane.lanes > 1 else []
    remarks += ["above its promise"] if lane.above else []
    remarks += [f"{count} broken: {cause}" for cause, count in lane.causes.items()]
    return "; ".join(remarks)
