"""ETL, STATS and PRED with messages that fall due by the clock, whatever happens to the sites; and what they take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.cli.locate import find_flow
from headwater.deploy.cut import Cut
from headwater.deploy.promise import cores_of_steps, part_cores, promise_of
from headwater.flow.contract import Contract
from headwater.flow.profile import Profile
from headwater.rate import demanding

SENSORS = "sensors"
EDGES = ("edge1", "edge2", "edge3")
PRICES = {SENSORS: 0.01, "cloud": 1.0, "edge1": 0.25, "edge2": 0.5, "edge3": 0.75}
RATES = {"etl": 200.0, "stats": 100.0, "pred": 150.0}
"""Messages a second: a share of this machine for each, as the sites are shares of it."""

_IPS = 1e9
_PROGRAM = '''
import time
from pathlib import Path

import numpy as np

from headwater import io
from headwater.clock import now_ns
from headwater.data.batch import CREATED, NO_WATERMARK, Batch
from headwater_bench.due import DueNumbers
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MESSAGES
from headwater_bench.riot.stats import stats

FOLDER, RATE = Path({folder!r}), {rate!r}
MADE = 1024


class Due:
    """Message n is there n / RATE seconds after the first read; the last one once a file says which it is."""

    resume = "position"
    schema = MESSAGES

    def open(self, reject, position=None):
        return DueReader(position or 0)


class DueReader:
    def __init__(self, position):
        self._due = DueNumbers(position, RATE, FOLDER / "end")
        self._texts = messages(stream("CITY", 1), 0, MADE)
        self._began_s = None

    @property
    def position(self):
        return self._due.position

    def read(self, limit, timeout_s):
        if self._began_s is None:
            self._began_s = self._begin()
        numbers = self._due.take(self._began_s, limit)
        if numbers is None:
            return None
        if not len(numbers):
            time.sleep(min(timeout_s, 0.005))
            return Batch.of_watermark(NO_WATERMARK)
        made = Batch.of({{"msg": numbers, "message": self._texts.take(numbers % MADE)}}, MESSAGES)
        if self._began_s:  # a sensor has made them when they were due, whenever somebody comes to read them
            late_s = time.time() - self._began_s - numbers / RATE
            made.stamps[:, CREATED] = now_ns() - (late_s * 1e9).astype(np.int64)
        return made

    def _begin(self):
        file = FOLDER / "began"
        if not file.exists():
            new = FOLDER / "began.new"
            new.write_text(repr(time.time()))
            new.replace(file)
        return float(file.read_text())

    def close(self):
        pass


def made(out):
    return {name}(Due(), publish=io.JsonLines(FOLDER / f"{{out}}.jsonl")).contract(RATE, "{bound_ms:g} ms")


def moved():
    return made("moved")


def undisturbed():
    return made("undisturbed")
'''


@dataclass(frozen=True)
class Promised:
    """A flow, what it is promised, and what that takes: of the site that runs it, and of the one with its sensors."""

    name: str
    folder: Path
    contract: Contract
    cores: float
    sensors: float

    @property
    def program(self) -> Path:
        """The file of the flow."""
        return self.folder / "flow.py"


def write_program(name: str, folder: Path, bound_s: float) -> Path:
    """Write a flow into a new folder, and return its file."""
    folder.mkdir(parents=True)
    program = folder / "flow.py"
    program.write_text(_PROGRAM.format(folder=str(folder), rate=RATES[name], name=name, bound_ms=1000 * bound_s))
    return program


def promised(name: str, folder: Path, bound_s: float) -> Promised:
    """Write a flow into a folder, and measure what its promise takes; its profile is written beside it."""
    program = write_program(name, folder, bound_s)
    (folder / "end").write_text("4000")  # for the measurement; it is to be done before it begins
    (folder / "began").write_text("0.0")  # all are there at once, and made when they are read
    flow = find_flow(f"{program}:moved")
    contract = flow.promised
    assert contract is not None
    profile = demanding(flow, contract, records=2000, point_s=0.5)
    (folder / "end").unlink()
    (folder / "began").unlink()
    measured = Profile(profile.flow, "edge1", profile.steps, demand=profile.demand)
    measured.write(folder / "profile.json")
    stay = {step.name for step in flow.steps.values() if step.is_source or step.is_sink}
    cut = Cut(flow, {step: SENSORS if step in stay else "edge1" for step in flow.steps})
    assert profile.demand is not None
    needed = cores_of_steps(contract, profile.demand)
    own = part_cores(contract, profile.demand)
    edge = max(
        promise_of(cut, "edge1", contract, measured).cores,
        own + sum(cores for step, cores in needed.items() if step not in stay),
    )
    sensors = max(
        promise_of(cut, SENSORS, contract, measured).cores,
        own + sum(cores for step, cores in needed.items() if step in stay),
    )
    return Promised(name, folder, contract, edge, sensors)


def write_net(path: Path) -> None:
    """Write the net of figure 7: a cloud, and three edges at a quarter, half and three quarters of its price."""
    lines = ['name = "continuum"']
    for name, price in PRICES.items():
        lines += [f"[classes.{name}]", f"cpu_ips = {_IPS}", "memory_bytes = 1e9", "access_bps = 1e9"]
        lines += [f"price_per_hour = {price}", f"cloud = {'true' if name == 'cloud' else 'false'}"]
    far = [[0.0 if a == b else 0.02 if "cloud" in (a, b) else 0.005 for b in PRICES] for a in PRICES]
    lines += ["[wan]", 'kind = "matrix"', f"latency_s = {far}"]
    for name in PRICES:
        sensors = ', sensors = ["messages"]' if name == SENSORS else ""
        lines += ["[[zones]]", f'name = "{name}"', f'devices = [{{class = "{name}"{sensors}}}]']
    path.write_text("\n".join(lines) + "\n")
