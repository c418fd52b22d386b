"""`headwater stop`."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from headwater.cli.parameters import JSON
from headwater.cli.screen import print_json, progress
from headwater.cli.sites import STATE, Coordinators, print_sites
from headwater.deploy.coordinator.asking import NobodyError, ask, at_rest
from headwater.deploy.coordinator.description import describe
from headwater.deploy.coordinator.events import Drop, Stop
from headwater.deploy.coordinator.server import Server, until
from headwater.deploy.coordinator.state import StateFolder
from headwater.errors import RunError, listed
from headwater.flow.duration import microseconds_of

_OVER = ("stopped", "ended")


def stop(
    state: Coordinators = STATE,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="remove what sites keep of the flow too: a later deploy begins anew"),
    ] = False,
    within: Annotated[str, typer.Option(help="how long to wait for all sites")] = "60s",
    as_json: JSON = False,
) -> None:
    """Stop the flow that is deployed at sites, each part with a checkpoint; `headwater deploy` goes on from there.

    It does not matter whether the coordinator still runs: where it does not, this command tells the sites.
    """
    folder = StateFolder(state)
    within_s = microseconds_of("--within", within) / 1e6
    if not folder.exists:
        raise RunError(f"there is no state of a coordinator in {folder.path}; name its folder with --state")
    with progress("stopping"):
        try:
            document = _ask(folder, within_s)
        except NobodyError:
            document = asyncio.run(_alone(folder, within_s))
        if forget:
            _forget(folder)
            document = _forget_answer(document)
    if as_json:
        print_json(document)
    else:
        print_sites(document)


def _ask(folder: StateFolder, within_s: float) -> dict[str, Any]:
    """Have the coordinator that runs stop the flow; it leaves when that is done."""
    until_s = time.monotonic() + within_s
    document = ask(folder, "stop")
    while document["flow"] is not None and document["flow"]["phase"] not in _OVER:
        if time.monotonic() > until_s:
            raise _late(document, within_s)
        time.sleep(0.1)
        try:
            document = ask(folder, "status")
        except NobodyError:
            deployed = folder.read().deployed
            if deployed is None or deployed.phase not in _OVER:
                raise
            document["flow"]["phase"] = deployed.phase
    return document


async def _alone(folder: StateFolder, within_s: float) -> dict[str, Any]:
    """Be the coordinator for as long as it takes to stop the flow."""
    server = Server(folder)
    try:
        machine = server.coordinator
        if machine.kept.deployed is None or machine.kept.deployed.phase in _OVER:
            return at_rest(folder)
        assert folder.address is not None
        server.handle(Stop())
        await server.open(*folder.address)
        try:
            deployed = machine.kept.deployed
            if not await until(lambda: deployed.phase in _OVER, within_s):
                raise _late(describe(deployed, machine.sites), within_s)
            await asyncio.sleep(0.2)
            return describe(machine.kept.deployed, machine.sites)
        finally:
            await server.close()
    finally:
        server.release()


def _forget_answer(document: dict[str, Any]) -> dict[str, Any]:
    """Say what was forgotten: nothing of what a table would show is there any more."""
    flow = document["flow"]
    why = "there was nothing to forget"
    if flow is not None:
        why = f"flow '{flow['name']}' is forgotten; its sites remove what they keep of it once a coordinator tells them"
    return {"flow": None, "sites": [], "why": why}


def _late(document: dict[str, Any], within_s: float) -> RunError:
    late = [site["name"] for site in document["sites"] if site["steps"] and site["state"] not in _OVER]
    return RunError(
        f"sites {listed(late)} have not stopped within {within_s:g} s; they are told to as soon as they are here, "
        "while a coordinator runs"
    )


def _forget(folder: StateFolder) -> None:
    """Have what has stopped removed; sites are told when they next hear from a coordinator."""
    until_s = time.monotonic() + 10.0
    while True:
        try:
            ask(folder, "forget")
            return
        except NobodyError:
            pass
        try:
            server = Server(folder)
        except RunError:  # the coordinator is just leaving
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)
            continue
        try:
            if server.coordinator.kept.deployed is not None:
                server.handle(Drop())
            return
        finally:
            server.release()
