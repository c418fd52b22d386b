"""A flow over three sites, as processes of this machine: records fall due by the clock, whatever happens to the sites."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from headwater.deploy.control.messages import Ask
from headwater.deploy.coordinator.asking import NobodyError, ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.deploy.local.cuts import Cuts, How
from headwater.errors import RunError
from headwater.processes import children, family, kill
from headwater_bench.processes import end

SITES = ("edge-1", "edge-2", "cloud")
SPARK = "lake"  #: a further site, whose parts run on Spark; nothing is there at first
#: the source and the sink stay; between them is a step without state, one with state by key, and windows
PLACED = {
    "readings": "edge-1",
    "time": "edge-1",
    "sound": "edge-1",
    "seen": "edge-2",
    "came": "cloud",
    "archive": "cloud",
    "sums": "edge-2",
    "daily": "cloud",
}
MOVABLE = ("sound", "seen", "sums")
_WAIT_S = 240.0
_WAY_S = 0.001  #: from one site to another, where sites have networks of their own
_LOOK_S = 0.1  #: between two looks: each is a connection of its own, and takes of the machine what a move needs

_FLOW = '''
import time
from pathlib import Path

import numpy as np

from headwater import Flow, Tumbling, agg, col, io
from headwater.data.batch import NO_WATERMARK, Batch
from headwater.data.schema import Schema
from headwater_bench.due import DueNumbers

FOLDER, BEGAN_S, RATE = Path({folder!r}), {began_s!r}, {rate!r}
SCHEMA = Schema.of({{"n": int, "sensor": int, "value": float, "at": "time"}})


class Due:
    """Record n is there n / RATE seconds after the beginning; the last one once a file says which it is."""

    resume = "position"
    schema = SCHEMA

    def open(self, reject, position=None):
        return DueReader(position or 0)


class DueReader:
    def __init__(self, position):
        self._due = DueNumbers(position, RATE, FOLDER / "end")

    @property
    def position(self):
        return self._due.position

    def read(self, limit, timeout_s):
        n = self._due.take(BEGAN_S, limit)
        if n is None:
            return None
        if not len(n):
            time.sleep(min(timeout_s, 0.002))
            return Batch.of_watermark(NO_WATERMARK)
        at = np.int64(BEGAN_S * 1e6) + n * 1_000_000 // RATE
        return Batch.of({{"n": n, "sensor": n % 53, "value": n % 97 * 0.5, "at": at}}, SCHEMA)

    def close(self):
        pass


def seen(state, record):
    count, total = state or (0, 0.0)
    count, total = count + 1, total + record["value"]
    return (count, total), record | {{"seen": count, "total": total}}


def came(record):
    return record | {{"came": time.time()}}


def made(out):
    flow = Flow("readings")
    readings = flow.read("readings", Due()).event_time("time", "at")
    sound = readings.filter("sound", col.value >= 0)
    known = {{"n": int, "sensor": int, "value": float, "at": "time", "seen": int, "total": float}}
    counted = sound.key_by("sensor").process("seen", seen, out=known)
    counted.map("came", came, out=known | {{"came": float}}).write("archive", io.JsonLines(FOLDER / out / "archive.jsonl"))
    sums = sound.key_by("sensor").window("sums", Tumbling("1 s"), n=agg.count(), total=agg.sum("value"))
    sums.write("daily", io.JsonLines(FOLDER / out / "daily.jsonl"))
    return flow


def moved():
    return made("moved")


def undisturbed():
    return made("undisturbed")
'''

_NET = """
name = "boxes"
[classes.box]
cpu_ips = 2e9
memory_bytes = 5e8
access_bps = 1e8
[wan]
kind = "matrix"
latency_s = {latency_s}
"""
_ZONE = '[[zones]]\nname = "{0}"\n{1}devices = [{{class = "box", name = "{0} box"}}]\n'
_ON_SPARK = 'kind = "spark"\nmaster = "local[2]"\n'


def net_of(
    sites: Sequence[str], spark: Sequence[str] = (), way_s: float = 0.01, lanes: int | Literal["auto"] | None = None
) -> str:
    """Return the text of a net file: a box at each site, so far from all others.

    Parts at some of them run on `spark`, and those at all others in so many `lanes`.
    """
    latency_s = [[0.0 if one == other else way_s for other in sites] for one in sites]
    in_lanes = "" if lanes is None else f"lanes = {json.dumps(lanes)}\n"
    zones = (_ZONE.format(site, _ON_SPARK if site in spark else in_lanes) for site in sites)
    return _NET.format(latency_s=latency_s) + "".join(zones)


def agent_of(up: int, name: str) -> int | None:
    """Return the agent of a site, a process that `headwater up` has started; None while there is none."""
    for pid in children(up):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--name" in words and words[words.index(b"--name") + 1] == name.encode():
                return pid
    return None


class Farm:
    """The sites and the coordinator, in a folder; `close` ends all of them."""

    def __init__(self, folder: Path, rate: int, every: str, *, spark: bool = False, lanes: int | None = None) -> None:
        """Start them; with `spark`, a fourth site runs its parts there. Those of the others have so many `lanes`."""
        self.folder, self.rate = folder, rate
        self.began_s = time.time() + 1.0
        for out in ("moved", "undisturbed"):
            (folder / out).mkdir()
        text = _FLOW.format(folder=str(folder), began_s=self.began_s, rate=rate)
        (folder / "readings.py").write_text(text)
        more = (SPARK,) if spark else ()
        (folder / "net.toml").write_text(net_of((*SITES, *more), more, _WAY_S, lanes))
        plan = {"flow": "readings.py:moved", "net": "net.toml", "placement": PLACED}
        (folder / "plan.json").write_text(json.dumps(plan))
        self._state = StateFolder(folder / ".headwater" / "deploy")
        self._log = open(folder / "log", "ab")  # noqa: SIM115 - closed with the processes that write to it
        self._cuts = Cuts(self._state.path / "sites")
        self._up = self._started("up", "net.toml")
        self.coordinator = self._started("deploy", "plan.json", "--within", "120s", "--every", every)

    def _started(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headwater", *words]
        return subprocess.Popen(command, cwd=self.folder, stdout=self._log, stderr=self._log, start_new_session=True)

    # -- what is known ----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any] | None:
        """Return what the coordinator says; None while there is none."""
        try:
            return ask(self._state, "status")
        except NobodyError:
            return None

    def settled(self) -> dict[str, Any] | None:
        """Return what the coordinator says once all sites are here, all parts run, and nothing is being moved."""
        status = self.status()
        if (
            not status
            or not status["flow"]
            or status["flow"]["moving"]
            or not all(site["here"] for site in status["sites"])
        ):
            return None
        return status if all(site["state"] == "running" for site in status["sites"] if site["steps"]) else None

    def wait(self, met: Callable[[], Any], what: str) -> Any:
        """Wait for something; RunError with the last words of all processes where it does not come."""
        until_s = time.monotonic() + _WAIT_S
        while not (value := met()):
            if time.monotonic() > until_s:
                last_words = "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-20:])
                raise RunError(f"{what} did not come within {_WAIT_S:g} s; the last that was said:\n{last_words}")
            time.sleep(_LOOK_S)
        return value

    def wait_until_cut(self, within_s: float) -> None:
        """Wait until the old parts are told to stop, as the coordinator notes it; or until no move is left, for so long."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            deployed = self._state.read().deployed
            if deployed is None or deployed.moving is None or deployed.moving.cut:
                return
            time.sleep(0.005)

    def sites_of(self, steps: tuple[str, ...]) -> dict[str, str]:
        """Return where steps are."""
        status = self.wait(self.settled, "a flow that runs")
        return {step: site["name"] for site in status["sites"] for step in site["steps"] if step in steps}

    # -- what is done to it -----------------------------------------------------------------------------------------------

    def move(self, steps: list[str], site: str) -> None:
        """Begin a move; a site that was taken for gone comes back in a moment."""

        def has_begun() -> bool:
            try:
                return bool(ask(self._state, Ask("move", steps, site)))
            except NobodyError:
                return False
            except RunError as error:
                if "not here" not in str(error) and "being moved" not in str(error):
                    raise
                return False

        self.wait(has_begun, "a move")

    def kill_site(self, name: str) -> None:
        """Kill a site: its agent, the processes of its parts, and what those have started, such as Spark's Java."""
        kill(family(self._agent(name)))

    def why_uncut(self) -> str:
        """Say why no link can be cut; nothing where they can."""
        return self._cuts.why_not()

    def cut(self, site: str, other: str | None, how: How, seconds: float) -> None:
        """Cut the link between a site and another, the coordinator, or all of them, and wait until it is mended."""
        self._cuts.cut(site, other, how)
        time.sleep(seconds)
        self._cuts.mend(site, other)

    def kill_coordinator(self) -> None:
        """Kill the coordinator, and start it again."""
        self.coordinator.kill()
        self.coordinator.wait()
        self.coordinator = self._started("deploy", "--within", "120s")

    def _agent(self, name: str) -> int:
        pid: int = self.wait(lambda: agent_of(self._up.pid, name), f"site '{name}'")
        return pid

    def finish(self, more_s: float) -> int:
        """Have the source end some seconds from now; return how many records there are then, once all have come."""
        count = int((time.time() + more_s - self.began_s) * self.rate)
        (self.folder / "end.new").write_text(str(count))
        (self.folder / "end.new").replace(self.folder / "end")
        self.wait(lambda: self.coordinator.poll() is not None, "the end of the flow")
        return count

    def close(self) -> None:
        """End all processes."""
        end([self.coordinator, self._up])
        self._log.close()
