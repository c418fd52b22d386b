"""`headwater up NET`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater import net as nets
from headwater.cli.sites import STATE, Coordinators
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.ports import free_port
from headwater.deploy.token import make_token, use_token
from headwater.errors import NetError, RunError, listed, suggestion
from headwater.io.lock import Lock

log = logging.getLogger("headwater.up")

_MOST = 32  #: sites as processes of one machine
_AGAIN_S = 1.0  #: before a site that died is started again
_STOP_S = 40.0
_LOOPBACK = "127.0.0.1"


def up(
    net: Annotated[Path, typer.Argument(metavar="NET", help="a net file; its zones are the sites")],
    only: Annotated[
        list[str] | None, typer.Option("--site", help="only this site; may be given several times [default: all]")
    ] = None,
    state: Coordinators = STATE,
) -> None:
    """Start all sites of a net on this machine, as processes, for trials and tests; until stopped.

    `headwater deploy PLAN` with the same state folder is the coordinator that they wait for. All talk over loopback: links
    are as fast as this machine, whatever the net says of them. A site that dies is started again.
    """
    sites = _chosen(net, only)
    folder = StateFolder(state)
    lock = Lock(folder.path / "sites", "the folder of sites")
    try:
        _run(sites, folder)
    finally:
        lock.release()


def _run(sites: list[str], folder: StateFolder) -> None:
    folder.identity()
    host, port = folder.settled_address(_LOOPBACK, free_port(_LOOPBACK))
    if log.getEffectiveLevel() == logging.WARNING:
        log.setLevel(logging.INFO)
    leaving = threading.Event()
    before = {
        number: signal.signal(number, lambda signum, frame: leaving.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in sites:
            place = folder.path / "sites" / name
            use_token(make_token(folder.certificates, name), place / "identity", name)
            running[name] = _started(name, place, port)
        log.info("%d sites run, and wait for a coordinator at %s:%d: %s", len(sites), host, port, ", ".join(sites))
        _watch(running, leaving, folder, port)
    finally:
        _end(running)
        for number, handler in before.items():
            signal.signal(number, handler)


def _chosen(path: Path, only: list[str] | None) -> list[str]:
    net = nets.read(path)
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


def _started(name: str, place: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headwater", "site", "--name", name, "--state", str(place)]
    command += ["--join", f"{_LOOPBACK}:{port}", "--listen", _LOOPBACK, "--leash"]
    # in a session of its own: Ctrl-C is for us, who tell each once; its input ends when we do, however that comes
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _watch(running: dict[str, Any], leaving: threading.Event, folder: StateFolder, port: int) -> None:
    again_s: dict[str, float] = {}
    while not leaving.wait(0.1):
        for name, process in list(running.items()):
            if process.poll() is None:
                continue
            if name not in again_s:
                again_s[name] = time.monotonic() + _AGAIN_S
                log.error("site '%s' ended with %d; it is started again", name, process.returncode)
            elif time.monotonic() > again_s[name]:
                del again_s[name]
                running[name] = _started(name, folder.path / "sites" / name, port)


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
