"""`headwater deploy PLAN`."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.address import address_of
from headwater.cli.parameters import JSON
from headwater.cli.part import flow_deployed
from headwater.cli.screen import print_json
from headwater.cli.site_web import LISTEN as WEB_LISTEN
from headwater.cli.site_web import Web, WebListen, check_dashboard, site_dashboard
from headwater.cli.sites import SITES, STATE, Coordinators, print_sites
from headwater.cli.submission import PLANS, Submission, Terms, submission
from headwater.deploy.coordinator.events import Deploy, Drop, Resume
from headwater.deploy.coordinator.server import Server, until
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.policies import POLICIES
from headwater.deploy.policies.view import View
from headwater.errors import PlacementError, RunError, listed
from headwater.flow.duration import microseconds_of
from headwater.io.lock import Lock

if TYPE_CHECKING:
    from headwater.deploy.api.plans import Plans

log = logging.getLogger("headwater.deploy")

_JOIN_S = 1.0  #: that sites which come at about the same time are given
LISTEN = "127.0.0.1:8471"
_LEAVE_ADVICE = (
    "the sites go on; 'headwater deploy --state {0}' looks after them again, 'headwater stop --state {0}' stops them"
)


def deploy(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[PLAN|FLOW]",
            help="a plan, as 'headwater plan --output' writes it, or a flow; without it, goes on with what is deployed",
        ),
    ] = None,
    net: Annotated[
        Path | None, typer.Argument(metavar="[NET]", help="of a flow: a net file, whose zones are sites")
    ] = None,
    policy: Annotated[str, typer.Option(help=f"who decides where steps run: {', '.join(POLICIES)}")] = "fixed",
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
    rate: Annotated[
        float | None, typer.Option(help="replay the records of sources once, at so many per second")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            help="how often parts make a checkpoint, for which records wait at each bridge [default: what the plan says, or "
            "250 ms]"
        ),
    ] = None,
    promise: Annotated[
        str | None, typer.Option(help="a rate such as 2000/s that sites promise [default: the flow's own contract]")
    ] = None,
    best_effort: Annotated[
        bool, typer.Option(help="promise it also at sites that can reserve nothing: as good as what is left there")
    ] = False,
    whole: Annotated[bool, typer.Option(help="keep all steps but sources and sinks together, at one site")] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="what steps cost, of 'headwater profile' (with --contract, for a promise); measured if left out"
        ),
    ] = None,
    measured_on: Annotated[
        str | None, typer.Option(help="class of the net, or instructions/s, that the profile was measured on")
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STEP=SITE",
            help="where a step must run, by its site or a device there; sources need it, or a sensor",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="STEP=TRUST", help="its output must not leave this trust zone")
    ] = None,
    settle: Annotated[str, typer.Option(help="how long a reason must hold before a policy moves anything")] = "5s",
    rest: Annotated[
        str, typer.Option(help="how long a policy waits after a move before one that is only for gain")
    ] = "60s",
    within: Annotated[str, typer.Option(help="how long to wait for all sites to join, and take their parts")] = "60s",
    web: Web = False,
    web_listen: WebListen = None,
    as_json: JSON = False,
) -> None:
    """Run a flow at the sites of a plan: hand each its part, start them, and look after them until the flow ends.

    With a policy, steps move by themselves as sites come and go, prices change and promises come into danger; a flow and a
    net are enough then: the policy chooses among the sites that are there.

    Ctrl-C leaves the sites as they are: they go on by themselves, and the same command without a plan looks after them
    again. What the coordinator knows is in its state folder, and survives whatever ends it; a folder has one flow at a time.
    """
    if log.getEffectiveLevel() == logging.WARNING:
        log.setLevel(logging.INFO)
    web_at = check_dashboard(web, web_listen, WEB_LISTEN)
    folder = StateFolder(state)
    if every is not None:
        microseconds_of("--every", every)
    within_s = microseconds_of("--within", within) / 1e6
    options = {"inputs": inputs or [], "output": None if output is None else str(output.absolute())}
    terms = Terms(
        policy=policy,
        profile=profile,
        measured_on=measured_on,
        pin=pin or [],
        keep=keep or [],
        whole=whole,
        promise=promise,
        best_effort=best_effort,
        settle_s=microseconds_of("--settle", settle) / 1e6,
        rest_s=microseconds_of("--rest", rest) / 1e6,
    )
    request = None if what is None else submission(what, net, {**options, "rate": rate, "every": every}, terms)
    address = address_of("--listen", LISTEN if listen is None else listen, LISTEN)
    folder.identity()  # before the address, at which whoever asks shows it
    if listen is None:
        address = folder.settled_address(*address)
    else:
        check_listen(folder, address)
    with site_dashboard(web, web_at, folder, plans=lambda: _plans(what, folder)):
        document = asyncio.run(_coordinate(folder, request, address, within_s))
    if as_json:
        print_json(document)
    else:
        print_sites(document)


def _plans(what: str | None, folder: StateFolder) -> Plans | None:
    """Return what a page needs to plan the flow anew while it runs; None where there is no plan to begin with."""
    if what is None or Path(what).suffix not in PLANS:
        return None
    from headwater.cli.planning import plans_of_plan

    return plans_of_plan(Path(what), folder)


def check_listen(folder: StateFolder, address: tuple[str, int]) -> None:
    """Refuse an address at which sites that `headwater up` has started here would never find the coordinator."""
    current, place = folder.address, folder.path / SITES
    if current is None or current == address or not place.is_dir():
        return
    try:
        Lock(place, "the folder of sites").release()
    except RunError:
        raise RunError(
            f"the sites of 'headwater up' with the state folder {folder.path} dial {current[0]}:{current[1]}, and --listen "
            f"says {address[0]}:{address[1]}; leave --listen out, or start 'headwater up' again after this command"
        ) from None


async def _coordinate(
    folder: StateFolder, request: Submission | None, address: tuple[str, int], within_s: float
) -> dict[str, Any]:
    server = Server(folder, flow_deployed)
    try:
        is_placed = _take(server, request)
        await server.open(*address)
        log.info("the coordinator listens at %s:%d; its state is in %s", address[0], server.port, folder.path)
        interrupted = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
        try:
            if request is not None and not is_placed:
                await _choose(server, request, interrupted, within_s)
            await _wait_until_begun(server, interrupted, within_s)
            await _wait_until_over(server, interrupted)
            if server.unkept is not None:
                raise server.unkept
            return server.describe()
        finally:
            await server.close()
    finally:
        server.release()


def _take(server: Server, request: Submission | None) -> bool:
    """Have the coordinator deploy what is wanted, or go on with what it has; say whether its sites are known by now."""
    current = server.coordinator.kept.deployed
    deployment = None if request is None else request.deployment()
    if deployment is None:
        if current is None:
            raise RunError(f"nothing is deployed with the state folder {server.folder.path}; name a plan")
    elif current is not None and current.phase == "ended":
        if current.same_as(deployment):
            raise RunError(
                f"flow '{current.name}' has ended with this very plan, and nothing is run; to run it anew: "
                f"headwater stop --forget --state {server.folder.path}"
            )
        server.handle(Drop())
        current = None
    if deployment is not None and (current is None or not current.same_as(deployment)):
        if current is None and not deployment.sites:
            return False
        server.handle(Deploy(deployment))
    elif current is not None:
        if deployment is not None and deployment.sites and deployment.sites != current.sites:
            steps = [step for step, site in current.sites.items() if deployment.sites.get(step) != site]
            log.warning("steps %s were moved since, and stay where they are", listed(steps))
        if current.phase == "stopped":
            server.handle(Resume())
    return True


async def _choose(server: Server, request: Submission, interrupted: asyncio.Event, within_s: float) -> None:
    """Have the policy choose among the sites that are there, once it finds some that do; RunError after a while."""
    loop, why = asyncio.get_running_loop(), ""
    until_s, before, last_views = loop.time() + within_s, list[str](), dict[str, View]()
    while not interrupted.is_set():
        views = server.policing.views(request.planner, None)
        here = [name for name, view in views.items() if view.here]
        if here and here == before and views != last_views and all(views[name].here for name in request.places):
            last_views = views
            try:
                await loop.run_in_executor(None, request.choose, views)
            except PlacementError as error:
                if str(error) != why:
                    log.warning("%s", error)
                why = str(error)
            else:
                server.handle(Deploy(request.deployment()))
                return
        before = here
        if loop.time() > until_s:
            missing = [name for name in request.places if not views[name].here]
            trouble = f"sites {listed(missing)} have not joined" if missing else why or "no site has joined"
            trouble += "" if here else _dial_advice(server)
            raise RunError(f"flow '{request.flow.name}' cannot be deployed within {within_s:g} s: {trouble}")
        await asyncio.sleep(_JOIN_S)


async def _wait_until_begun(server: Server, interrupted: asyncio.Event, within_s: float) -> None:
    """Wait until all sites have their parts; a deployment that cannot begin is taken back."""
    machine = server.coordinator

    def is_settled() -> bool:
        deployed = machine.kept.deployed
        over = interrupted.is_set() or server.unkept is not None or machine.trouble() is not None
        return over or deployed is None or deployed.phase != "installing"

    in_time = await until(is_settled, within_s)
    deployed, trouble = machine.kept.deployed, machine.trouble()
    if server.unkept is not None:
        return
    if trouble is None and not in_time and deployed is not None:
        here = [name for name, site in machine.sites.items() if site.here]
        missing = machine.missing() or deployed.needed
        trouble = (
            f"sites {listed(missing)} have not {'joined' if machine.missing() else 'taken their parts'} within "
            f"{within_s:g} s; here are {listed(here) or 'none'}{'' if here else _dial_advice(server)}"
        )
    if trouble is not None and deployed is not None and deployed.phase == "installing":
        if not deployed.ran:
            server.handle(Drop())
            await asyncio.sleep(0.2)  # those that have a part are told
        raise RunError(f"flow '{deployed.name}' cannot be deployed: {trouble}")


def _dial_advice(server: Server) -> str:
    """Say what sites that are not here should have done."""
    host, port = server.folder.address or ("?", 0)
    return (
        f". The coordinator listens at {host}:{port}: that is what 'headwater site --join' should name, and 'headwater up' "
        f"does with --state {server.folder.path}"
    )


async def _wait_until_over(server: Server, interrupted: asyncio.Event) -> None:
    reasons: dict[str, str] = {}
    while not interrupted.is_set() and server.unkept is None:
        deployed = server.coordinator.kept.deployed
        for site in server.describe()["sites"]:
            if site["why"] and reasons.get(site["name"]) != site["why"]:
                log.warning("site '%s' is %s: %s", site["name"], site["state"], site["why"])
            reasons[site["name"]] = site["why"]
        if deployed is None or deployed.phase in ("ended", "stopped"):
            await asyncio.sleep(0.5)  # sites are told, and whoever has asked for it hears of it
            return
        await asyncio.sleep(0.1)
    if server.unkept is None:
        log.warning(_LEAVE_ADVICE.format(server.folder.path))
