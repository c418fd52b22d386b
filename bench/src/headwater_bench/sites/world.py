"""Sites and coordinators as processes of this machine, each flow with its own; sites share a ledger for all flows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.deploy.coordinator.asking import NobodyError, ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.ports import free_port
from headwater.deploy.token import make_token, use_token
from headwater.errors import RunError
from headwater.rate.ledger import PROMISED
from headwater_bench.processes import end
from headwater_bench.sites.flows import PRICES, SENSORS, Promised, write_net

_WAIT_S = 240.0
_HOST = "127.0.0.1"
SCAN = """
import math, sys, time
share, x = float(sys.argv[1]), 0.5
while True:
    until = time.monotonic() + 0.1 * share
    while time.monotonic() < until:
        for i in range(200): x = math.sin(x + i) * math.exp(-x * x)
    time.sleep(0.1 * (1 - share))
"""
"""A program that is busy for a share of each tenth of a second."""


class World:
    """All processes, in a folder; `close` ends them."""

    def __init__(self, folder: Path, flows: list[Promised], *, settle: str, rest: str, every: str) -> None:
        self.folder, self.flows = folder, flows
        self._words = ("--settle", settle, "--rest", rest, "--every", every)
        self._log = open(folder / "log", "ab")  # noqa: SIM115 - closed with the processes that write to it
        self._running: list[subprocess.Popen[bytes]] = []
        self._coordinators: dict[str, subprocess.Popen[bytes]] = {}
        self._scans: list[subprocess.Popen[bytes]] = []
        self.lent: dict[str, float] = {}  #: cores that each site can promise now
        write_net(folder / "net.toml")

    def lend(self, site: str, capacity: float) -> None:
        """Have a site be able to promise so many cores from now on."""
        self.lent[site] = capacity
        file = self.folder / f"{site}.csv"
        file.with_suffix(".new").write_text(f"0,{capacity / PROMISED!r}\n")
        file.with_suffix(".new").replace(file)

    def start_sites(self, *sites: str) -> None:
        """Have sites appear."""
        for flow in self.flows:
            state = StateFolder(flow.folder / "state")
            state.identity()
            host, port = state.settled_address(_HOST, free_port(_HOST))
            for site in sites:
                place = flow.folder / site
                use_token(make_token(state.certificates, site), place / "identity", site)
                ledger = f"{SENSORS}-{flow.name}" if site == SENSORS else site
                words = (
                    "--name",
                    site,
                    "--state",
                    str(place),
                    "--join",
                    f"{host}:{port}",
                    "--listen",
                    _HOST,
                    "--leash",
                )
                market = ("--price", str(PRICES[site]), "--cores", str(self.folder / f"{ledger}.csv"))
                self._running.append(self._started("site", *words, *market, ledger=ledger))

    def start_flows(self, policy: str) -> None:
        """Deploy the flows, which begin as soon as their sites are there."""
        for flow in self.flows:
            words = (f"{flow.program}:moved", str(self.folder / "net.toml"), "--state", str(flow.folder / "state"))
            pins = ("--pin", f"publish={SENSORS}", *(("--pin", f"insert={SENSORS}") if flow.name == "etl" else ()))
            promise = ("--best-effort", "--whole", "--profile", str(flow.folder / "profile.json"))
            how = ("--policy", policy, "--within", f"{_WAIT_S:g}s", *self._words)
            started = self._started("deploy", *words, *pins, *promise, *how, ledger="coordinators")
            self._coordinators[flow.name] = started

    def scan(self, share: float) -> None:
        """Have SCAN take so much of a core more."""
        command = [sys.executable, "-S", "-c", SCAN, f"{min(share, 0.95):g}"]
        self._scans.append(subprocess.Popen(command, stdout=self._log, stderr=self._log))

    def _started(self, *words: str, ledger: str) -> subprocess.Popen[bytes]:
        run = self.folder / "run" / ledger
        run.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "headwater", *words],
            cwd=self.folder, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True,
            env={**os.environ, "HEADWATER_RUNTIME": str(run)},
        )  # fmt: skip

    # -- what is known ----------------------------------------------------------------------------------------------------

    def status(self, flow: Promised) -> dict[str, Any] | None:
        """Return what a flow's coordinator says; None while there is none."""
        try:
            return ask(StateFolder(flow.folder / "state"), "status")
        except (NobodyError, RunError):
            return None

    def sites(self) -> dict[str, str | None]:
        """Return where the steps of each flow run that can move; None where they do not, or while they move."""
        places: dict[str, str | None] = {}
        for flow in self.flows:
            status = self.status(flow)
            places[flow.name] = None
            if status and status["flow"] and not status["flow"]["moving"]:
                at = [site for site in status["sites"] if site["steps"] and site["name"] != SENSORS]
                if len(at) == 1 and at[0]["state"] == "running":
                    places[flow.name] = at[0]["name"]
        return places

    def wait(self, met: Callable[[], Any], what: str) -> Any:
        """Wait for something; RunError with the last words of all processes where it does not come."""
        until_s = time.monotonic() + _WAIT_S
        while not (value := met()):
            if time.monotonic() > until_s or any(each.poll() for each in self._coordinators.values()):
                last_words = "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])
                raise RunError(f"{what} did not come; the last that was said:\n{last_words}")
            time.sleep(0.2)
        return value

    # -- the end ----------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Have the sources end, and wait until everything has come out."""
        for flow in self.flows:
            began_s = float((flow.folder / "began").read_text())
            count = int((time.time() + 1.0 - began_s) * flow.contract.rate_hz)
            (flow.folder / "end.new").write_text(str(count))
            (flow.folder / "end.new").replace(flow.folder / "end")
        self.wait(lambda: all(each.poll() is not None for each in self._coordinators.values()), "the end of all flows")

    def close(self) -> None:
        """End all processes."""
        for scan in self._scans:
            scan.kill()
            scan.wait()
        end([*self._coordinators.values(), *self._running])
        self._log.close()
