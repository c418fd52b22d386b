"""What a page of the dashboard costs: the engine and its server with a viewer and without, in turn; how soon it is there.

Each figure is of processes as a user starts them: `headwater serve DIR --web`, and Debian's Chromium without a screen.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import RunError
from headwater.processes import children
from headwater_bench.experiments.trial import machine
from headwater_bench.experiments.web_smooth import SITES, STEPS, flow_of_many_steps, many_sites, script_ms

_PATIENCE_S = 60.0
_MAIN = "from headwater.cli import main; main()"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_FLOW = """
from headwater import Flow, Tumbling, agg, col, io

flow = Flow("tanks")
readings = io.Generate(lambda n: {"tank": n % 20, "height": n % 300.0}, {"tank": int, "height": float}, rate=1000)
levels = flow.read("levels", readings)
sound = levels.filter("sound", col.height >= 0)
sound.filter("low", col.height < 15).write("alarms", io.Discard())
sound.select("metres", tank=col.tank, height=col.height / 100).write("archive", io.Discard())
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A server with its dashboard at work."""

    url: str  #: of the pages
    token: str
    pid: int  #: of the server

    def processes(self) -> tuple[list[int], int]:
        """Return the server and its flows, and the dashboard."""
        started = children(self.pid)
        of_web = [pid for pid in started if b"headwater.web" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return [self.pid, *(pid for pid in started if pid not in of_web)], of_web[0]


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Serve the flows of a folder with a dashboard, until the context ends."""
    state = folder / ".headwater"
    log_file = folder / "said"
    words = ["serve", str(folder), "--listen", "127.0.0.1:0", "--web", "--web-listen", "127.0.0.1:0"]
    with log_file.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", _MAIN, *words], stderr=stderr, cwd=folder)
    try:
        url = until(lambda: re.search(r"the dashboard is at (\S+);", log_file.read_text()), log_file).group(1)
        until(lambda: "runs (process" in log_file.read_text(), log_file)
        yield Served(url, (state / "token").read_text().strip(), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE_S)


def until(true: Any, log_file: Path) -> Any:
    """Return what something gives once it gives anything; RunError, with what was said, where that takes too long."""
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        if value := true():
            return value
        time.sleep(0.05)
    raise RunError(f"the server does not come up: {log_file.read_text()[-500:]}")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser without a screen; RunError says what is not installed."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise RunError("pages are driven by Playwright: pip install playwright") from None
    if path is None:
        raise RunError("pages are driven in Chromium, which is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


def log_in(page: Any, url: str, token: str) -> None:
    """Let a page be one of somebody who may look."""
    page.goto(f"{url}/login#{token}")
    page.wait_for_url(lambda url: "/login" not in url)


def run(quick: bool = False, output: Path | None = None) -> dict[str, Any]:
    """Measure; `quick` takes one turn of 4 s each instead of three of 10 s."""
    turns, seconds = (1, 4.0) if quick else (3, 10.0)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        (folder / "tanks.py").write_text(_FLOW)
        with served(folder) as at:
            engine, dashboard = at.processes()
            alone, watched_cores, pages, paints = [], [], [], []
            for _ in range(turns):
                alone.append(_cores(engine, seconds))
                context = browser.new_context()
                page = context.new_page()
                log_in(page, at.url, at.token)
                paints.append(_painted_ms(page))
                before_s = _cpu_s([dashboard])
                watched_cores.append(_cores(engine, seconds))
                pages.append((_cpu_s([dashboard]) - before_s) / seconds)
                context.close()
            memory = _resident(dashboard)
        large = _largest(browser, folder / "many", seconds)
    answer = {
        "machine": machine(),
        "engine_cost": round(statistics.median(watched_cores) - statistics.median(alone), 4),
        "engine_cores_alone": round(statistics.median(alone), 4),
        "engine_cores_seen": round(statistics.median(watched_cores), 4),
        "dashboard_cores": round(statistics.median(pages), 4),
        "dashboard_mb": round(memory / 1e6, 1),
        "first_paint_ms": round(statistics.median(paints)),
        **large,
    }
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "web.json").write_bytes(msgspec.json.encode(answer))
    return answer


def table(answer: dict[str, Any]) -> str:
    """Write the answer for people."""
    return "\n".join(
        (
            f"on {answer['machine']}",
            f"a viewer costs the engine and its server {answer['engine_cost']:.4f} of a core "
            f"({answer['engine_cores_alone']:.4f} without, {answer['engine_cores_seen']:.4f} with)",
            f"the dashboard itself takes {answer['dashboard_cores']:.4f} of a core and {answer['dashboard_mb']:g} MB",
            f"the graph is there {answer['first_paint_ms']} ms after it was asked for",
            f"a refresh takes a browser {answer['steps_100_ms']:g} ms with {STEPS} steps, "
            f"and {answer['sites_20_ms']:g} ms with {SITES} sites",
        )
    )


def _largest(browser: Any, folder: Path, seconds: float) -> dict[str, float]:
    """Return what a refresh of the largest pages takes of a browser."""
    folder.mkdir()
    (folder / "many.py").write_text(flow_of_many_steps())
    page = browser.new_page()
    with served(folder) as at:
        log_in(page, at.url, at.token)
        page.wait_for_selector("svg.hw-graph g.node")
        steps_ms = script_ms(page, seconds)
    with many_sites() as (url, token):
        log_in(page, url, token)
        page.wait_for_selector("svg.hw-map g.node")
        sites_ms = script_ms(page, seconds)
    page.close()
    return {"steps_100_ms": round(steps_ms, 1), "sites_20_ms": round(sites_ms, 1)}


def _painted_ms(page: Any) -> float:
    """Ask for the page once more and return when its graph was there, counted from the beginning of the request."""
    page.reload(wait_until="commit")
    page.wait_for_selector("svg.hw-graph g.node")
    return float(page.evaluate("performance.now()"))


def _cores(pids: list[int], seconds: float) -> float:
    before_s = _cpu_s(pids)
    began_s = time.monotonic()
    time.sleep(seconds)
    return (_cpu_s(pids) - before_s) / (time.monotonic() - began_s)


def _cpu_s(pids: list[int]) -> float:
    total = 0.0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) * _TICK_S
    return total


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
