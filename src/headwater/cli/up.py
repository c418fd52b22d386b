"""`headwater up NET`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater import net as nets
from headwater.cli.placement_options import Ask
from headwater.cli.question import speed_named
from headwater.cli.site import lanes_of
from headwater.cli.site_web import LISTEN as WEB_LISTEN
from headwater.cli.site_web import Web, WebListen, check_dashboard, site_dashboard
from headwater.cli.sites import SITES, STATE, Coordinators
from headwater.deploy.bridge.links import Address
from headwater.deploy.bridge.uplink import Uplink
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.local.cuts import CutLink, Cuts
from headwater.deploy.local.emulation import Emulation
from headwater.deploy.local.ledgers import ledger_of, remove_ledger
from headwater.deploy.local.relay import LOOPBACK
from headwater.deploy.ports import free_port
from headwater.deploy.site.quote import Quote
from headwater.deploy.token import make_token, use_token
from headwater.errors import NetError, RunError, listed, suggestion
from headwater.io.lock import Lock
from headwater.net.net import Net

if TYPE_CHECKING:
    from headwater.deploy.api.plans import Plans

log = logging.getLogger("headwater.up")

_MOST = 32  #: sites as processes of one machine
_AGAIN_S = 1.0  #: before a site that died is started again
_STOP_S = 40.0


def up(
    net: Annotated[Path, typer.Argument(metavar="NET", help="a net file; its zones are the sites")],
    only: Annotated[
        list[str] | None, typer.Option("--site", help="only this site; may be given several times [default: all]")
    ] = None,
    namespaces: Annotated[
        bool, typer.Option(help="give each site a network of its own, with links as the net has them; needs root")
    ] = True,
    reach: Annotated[
        list[int] | None,
        typer.Option(metavar="PORT", help="of this machine, that sites reach at 127.0.0.1 too: a broker's; several"),
    ] = None,
    measured_on: Annotated[
        str | None,
        typer.Option(
            help="class of the net, or instructions/s, that a core of this machine is: a slower site has so much less of it "
            "[default: all have all cores]"
        ),
    ] = None,
    state: Coordinators = STATE,
    web: Web = False,
    web_listen: WebListen = None,
    flow: Annotated[
        list[str] | None, typer.Option(help="with --web: a flow to plan and deploy from the page; several")
    ] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help="with --flow: records/s of every source, or NAME=RATE, to plan with")
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="STEP=DEVICE", help="with --flow: where a step must run; sources need it, or a sensor"),
    ] = None,
) -> None:
    """Start all sites of a net on this machine, as processes, for trials and tests; until stopped.

    `headwater deploy PLAN` with the same state folder is the coordinator that they wait for. As root, each site is in a
    network namespace, and links between them have the net's latency and bandwidth; elsewhere all talk over loopback, as fast
    as this machine. A site that dies is started again. Nothing is left behind, whatever ends this command.
    `headwater link cut SITE` has links carry nothing for a while.
    """
    where = nets.read(net)
    sites = _select_sites(where, only)
    core_ips = None if measured_on is None else speed_named(measured_on, where)
    web_at = check_dashboard(web, web_listen, WEB_LISTEN)
    if flow and not web:
        raise RunError("--flow names flows to plan from a page; give --web too, or 'headwater deploy PLAN' beside this")
    options = {name: _site_options(where, net.parent, name) for name in sites}
    folder = StateFolder(state)
    lock = Lock(folder.path / SITES, "the folder of sites")
    if log.getEffectiveLevel() == logging.WARNING:
        log.setLevel(logging.INFO)
    try:
        folder.identity()
        address = folder.settled_address(LOOPBACK, free_port(LOOPBACK))
        servers = [address, *((LOOPBACK, port) for port in reach or ())]
        emulation = Emulation(where, sites, servers, namespaces=namespaces, core_ips=core_ips)
        try:
            for line in emulation.notices:
                log.info("%s", line)
            with ExitStack() as last:
                plans = _plans(flow or [], net, Ask(rate=rate, pin=pin, measured_on=measured_on), folder, last)
                last.enter_context(site_dashboard(web, web_at, folder, where, lambda: plans))
                _run(sites, folder, emulation, address, options)
        finally:
            emulation.close()
    finally:
        lock.release()


def _plans(flows: list[str], net: Path, ask: Ask, folder: StateFolder, last: ExitStack) -> Plans | None:
    """Return what a page needs to plan flows for these sites; a coordinator that it starts ends with `last`."""
    if not flows:
        return None
    from headwater.cli.planning import Deployer, plans_of_flows

    deployer = Deployer(folder)
    last.callback(deployer.close)
    return plans_of_flows(flows, net, ask, deployer)


def _site_options(net: Net, folder: Path, site: str) -> list[str]:
    """Return the options that a net of a folder has for the site of a zone; RunError for what the site would refuse."""
    master = dict(net.spark).get(site)
    words = [] if master is None else ["--kind", "spark", "--master", master]
    for zone, option, value in net.says:
        if zone == site:
            text = str(folder / str(value)) if str(value).endswith(".csv") else str(value)
            words += [f"--{option}", text]
            try:
                if option == "uplink":
                    Uplink.read(text)
                elif option == "lanes":
                    lanes_of(text, master)
                else:
                    Quote(f"--{option}", text)
            except RunError as error:
                raise NetError(f"zone '{site}' of net '{net.name}': {error}") from None
    return words


def _run(
    sites: list[str], folder: StateFolder, emulation: Emulation, address: Address, options: dict[str, list[str]]
) -> None:
    leaving = threading.Event()
    before = {
        number: signal.signal(number, lambda signum, frame: leaving.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    links = _Links(Cuts(folder.path / SITES), sites, emulation)

    def start(name: str) -> subprocess.Popen[bytes]:
        return _start_site(name, folder.path / SITES / name, emulation, address, options[name])

    try:
        for name in sites:
            place = folder.path / SITES / name
            use_token(make_token(folder.certificates, name), place / "identity", name)
            running[name] = start(name)
        log.info("%d sites run, and wait for a coordinator at %s:%d: %s", len(sites), *address, ", ".join(sites))
        _watch(running, leaving, start, links.look)
    finally:
        _end(running)
        links.close()
        for name in sites:
            remove_ledger(ledger_of(folder.path / SITES / name))
        for number, handler in before.items():
            signal.signal(number, handler)


def _select_sites(net: Net, only: list[str] | None) -> list[str]:
    for name in only or ():
        if name not in net.zones:
            slip = suggestion(name, net.zones) or f"; its sites are {listed(net.zones)}"
            raise NetError(f"net '{net.name}' has no site '{name}'{slip}")
    sites = list(only or net.zones)
    if len(sites) > _MOST:
        raise RunError(
            f"net '{net.name}' has {len(sites):,} sites, and each is a process; choose up to {_MOST} with --site"
        )
    return sites


def _start_site(
    name: str, place: Path, emulation: Emulation, address: Address, options: list[str]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headwater", "site", "--name", name, "--state", str(place), *options]
    share = emulation.share(name)
    if share is not None:
        # its cores are this machine's, of which it has fewer, while a plan takes them for slower ones
        command += ["--core-ips", str(emulation.core_ips)] + ([] if "--cores" in options else ["--cores", str(share)])
    host, port = emulation.way_to(address)
    command += ["--join", f"{host}:{port}", "--listen", emulation.address(name), "--leash"]
    # Ctrl-C is for us, who tell each once
    return emulation.start(name, command, HEADWATER_RUNTIME=str(ledger_of(place)))


class _Links:
    """The links between the sites, cut as somebody asks for."""

    def __init__(self, cuts: Cuts, sites: list[str], emulation: Emulation) -> None:
        self._cuts, self._sites, self._emulation = cuts, sites, emulation
        self._current: list[CutLink] = []
        cuts.begin(sites, emulation.why_uncut())

    def look(self) -> None:
        """Cut and mend what should be by now."""
        cuts = self._cuts.due(time.time())
        if cuts == self._current:
            return
        self._emulation.cut(cuts)
        self._cuts.did(self._sites, cuts)
        text = "; ".join(f"'{each.one}' and '{each.other}' ({each.how})" for each in cuts)
        log.info("links that are cut: %s", text or "none")
        self._current = cuts

    def close(self) -> None:
        """Leave."""
        self._cuts.end()


def _watch(
    running: dict[str, Any], leaving: threading.Event, start: Callable[[str], Any], look: Callable[[], None]
) -> None:
    again_s: dict[str, float] = {}
    while not leaving.wait(0.05):
        look()
        for name, process in list(running.items()):
            if process.poll() is None:
                continue
            if name not in again_s:
                again_s[name] = time.monotonic() + _AGAIN_S
                log.error("site '%s' ended with %d; it is started again", name, process.returncode)
            elif time.monotonic() > again_s[name]:
                del again_s[name]
                running[name] = start(name)


def _end(running: dict[str, Any]) -> None:
    """Stop all sites, in good order and in time."""
    for process in running.values():
        with suppress(ProcessLookupError):
            process.terminate()
    until_s = time.monotonic() + _STOP_S
    for name, process in running.items():
        try:
            process.wait(max(0.1, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.error("site '%s' did not stop in time, and is killed", name)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
