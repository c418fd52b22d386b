"""`headwater deploy PLAN`."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater import net as nets
from headwater.cli.address import address_of
from headwater.cli.locate import find_flow
from headwater.cli.part import flow_deployed
from headwater.cli.rewire import rewired
from headwater.cli.run import JSON
from headwater.cli.screen import print_json
from headwater.cli.sites import STATE, Coordinators, print_sites
from headwater.deploy.bundle import sources_of
from headwater.deploy.coordinator.events import Deploy, Drop, Resume
from headwater.deploy.coordinator.server import Server, until
from headwater.deploy.coordinator.state import Deployed, StateFolder
from headwater.deploy.cut import Cut
from headwater.errors import PlacementError, RunError, listed
from headwater.flow.duration import microseconds_of
from headwater.place.plan import Plan

log = logging.getLogger("headwater.deploy")

LISTEN = "127.0.0.1:8471"
_LEFT = (
    "the sites go on; 'headwater deploy --state {0}' looks after them again, 'headwater stop --state {0}' stops them"
)


def deploy(
    plan: Annotated[
        Path | None,
        typer.Argument(
            help="a plan, as 'headwater plan --output' writes it; without it, goes on with what is deployed"
        ),
    ] = None,
    state: Coordinators = STATE,
    listen: Annotated[
        str | None, typer.Option(help=f"where sites reach the coordinator [default: where it was before, or {LISTEN}]")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE", help="a file at the site, to be read in place of a source"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="a folder at each site for files that are written in place of all sinks")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="replay the records of sources at so many per second")] = None,
    every: Annotated[
        str, typer.Option(help="how often parts make a checkpoint: records wait as long at each bridge")
    ] = "250 ms",
    within: Annotated[str, typer.Option(help="how long to wait for all sites to join, and take their parts")] = "60s",
    as_json: JSON = False,
) -> None:
    """Run a flow at the sites of a plan: hand each its part, start them, and look after them until the flow ends.

    Ctrl-C leaves the sites as they are: they go on by themselves, and the same command without a plan looks after them
    again. What the coordinator knows is in its state folder, and survives whatever ends it; a folder has one flow at a time.
    """
    if log.getEffectiveLevel() == logging.WARNING:
        log.setLevel(logging.INFO)
    folder = StateFolder(state)
    microseconds_of("--every", every)
    within_s = microseconds_of("--within", within) / 1e6
    given = {"inputs": inputs or [], "output": None if output is None else str(output.absolute())}
    wanted = None if plan is None else planned(plan, {**given, "rate": rate, "every": every})
    at = address_of("--listen", LISTEN if listen is None else listen, LISTEN)
    folder.identity()  # before the address, at which whoever asks shows it
    host, port = folder.settled_address(*at) if listen is None else at
    document = asyncio.run(_held(folder, wanted, (host, port), within_s))
    if as_json:
        print_json(document)
    else:
        print_sites(document)


def planned(path: Path, given: dict[str, Any]) -> Deployed:
    """Return what a plan deploys, cut and checked; `given` are inputs, output, rate and every."""
    if path.suffix not in (".json", ".toml"):
        raise PlacementError(
            f"headwater deploy takes a plan, a .json or .toml file; got '{path}'. For a flow, make one first: "
            "headwater plan FLOW NET --output plan.json"
        )
    plan = Plan.load(path)
    net = nets.read(Path(plan.net))
    flow = find_flow(plan.flow)
    cut = Cut.of(plan, rewired(flow, inputs=given["inputs"], rate=given["rate"], may_come=True), net)
    reference, files = plan.flow, dict[str, bytes]()
    head, colon, name = plan.flow.rpartition(":")
    file = Path(head or plan.flow)
    if file.suffix == ".py":
        reference, files = f"{file.name}{colon}{name}" if head else file.name, sources_of(file)
    return Deployed(
        id=f"{re.sub('[^a-z0-9]+', '-', flow.name.lower()).strip('-') or 'flow'}-{secrets.token_hex(3)}",
        name=flow.name,
        flow=reference,
        known=list(net.zones),
        sites=dict(cut.site_of),
        joined=sorted({(crossing.origin, crossing.target) for crossing in cut.crossings}),
        files=files,
        **given,
    )


async def _held(folder: StateFolder, wanted: Deployed | None, at: tuple[str, int], within_s: float) -> dict[str, Any]:
    server = Server(folder, flow_deployed)
    try:
        _take(server, wanted)
        await server.open(*at)
        log.info("the coordinator listens at %s:%d; its state is in %s", at[0], server.port, folder.path)
        left = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, left.set)
        try:
            await _begun(server, left, within_s)
            await _over(server, left)
            return server.describe()
        finally:
            await server.close()
    finally:
        server.release()


def _take(server: Server, wanted: Deployed | None) -> None:
    """Have the coordinator deploy what is wanted, or go on with what it has."""
    has = server.coordinator.kept.deployed
    if wanted is None:
        if has is None:
            raise RunError(f"nothing is deployed with the state folder {server.folder.path}; name a plan")
    elif has is not None and has.phase == "ended":
        if has.same_as(wanted):
            raise RunError(
                f"flow '{has.name}' has ended with this very plan, and nothing is run; to run it anew: "
                f"headwater stop --forget --state {server.folder.path}"
            )
        server.handle(Drop())
        has = None
    if wanted is not None and (has is None or not has.same_as(wanted)):
        server.handle(Deploy(wanted))
    elif has is not None and has.phase == "stopped":
        server.handle(Resume())


async def _begun(server: Server, left: asyncio.Event, within_s: float) -> None:
    """Wait until all sites have their parts; a deployment that cannot begin is taken back."""
    machine = server.coordinator

    def settled() -> bool:
        deployed = machine.kept.deployed
        return left.is_set() or machine.trouble() is not None or deployed is None or deployed.phase != "installing"

    in_time = await until(settled, within_s)
    deployed, trouble = machine.kept.deployed, machine.trouble()
    if trouble is None and not in_time and deployed is not None:
        here = [name for name, site in machine.sites.items() if site.here]
        missing = machine.missing() or deployed.needed
        trouble = (
            f"sites {listed(missing)} have not {'joined' if machine.missing() else 'taken their parts'} within "
            f"{within_s:g} s; here are {listed(here) or 'none'}"
        )
    if trouble is not None and deployed is not None and deployed.phase == "installing":
        if not deployed.ran:
            server.handle(Drop())
            await asyncio.sleep(0.2)  # those that have a part are told
        raise RunError(f"flow '{deployed.name}' cannot be deployed: {trouble}")


async def _over(server: Server, left: asyncio.Event) -> None:
    told: dict[str, str] = {}
    while not left.is_set():
        deployed = server.coordinator.kept.deployed
        for site in server.describe()["sites"]:
            if site["why"] and told.get(site["name"]) != site["why"]:
                log.warning("site '%s' is %s: %s", site["name"], site["state"], site["why"])
            told[site["name"]] = site["why"]
        if deployed is None or deployed.phase in ("ended", "stopped"):
            await asyncio.sleep(0.5)  # sites are told, and whoever has asked for it hears of it
            return
        await asyncio.sleep(0.1)
    log.warning(_LEFT.format(server.folder.path))
