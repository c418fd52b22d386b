"""Pictures of every page of the dashboard, light and dark, into docs/dashboard: `make screenshots`.

Flows of a water works run for a while first, one of them with more than it can do, one with records that break it;
then one at five sites.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from headwater.flow.profile import Profile, StepProfile
from headwater_bench.experiments.web import Served, chromium, log_in, served, until

TO = Path(__file__).parents[1] / "docs" / "dashboard"
#: event time, windows, a step in Python, several sinks
TANKS = """
import time

import numpy as np

from headwater import Flow, Tumbling, agg, col, io


def readings(n):
    height = 140 + 120 * np.sin(n / 9000) + n * 7919 % 40
    valve = np.where(n % 24_000 == 777, "?", (n % 3).astype(str))
    at = time.time_ns() // 1000 - n * 7919 % 900_000
    return {"tank": [f"tank-{tank:02d}" for tank in n % 24], "height": height, "valve": valve.tolist(), "at": at}


flow = Flow("tanks")
levels = flow.read("levels", io.Generate(readings, {"tank": str, "height": float, "valve": str, "at": "time"}, rate=RATE))
known = {"tank": str, "height": float, "valve": int, "at": "time"}
valves = levels.map("valves", lambda r: {**r, "valve": int(r["valve"])}, out=known)
sound = valves.filter("sound", col.height >= 0)
sound.filter("low", col.height < 60).write("alarms", io.JsonLines("alarms.jsonl"))
sound.filter("open", col.valve == 2).select("flows", tank=col.tank, litres=col.height * 3.2).write("meters", io.Discard())
by_tank = sound.event_time("clock", "at", lateness="2 s").key_by("tank")
means = by_tank.window("ten seconds", Tumbling("10 s"), mean=agg.mean("height"), most=agg.max("height"))
means.write("archive", io.Csv("means.csv"))
"""
PROMISED = """
from headwater import Flow, col, io

flow = Flow("pumps")
pumps = flow.read("pumps", io.Generate(lambda n: {"pump": n % 9, "bar": n % 70 / 10}, {"pump": int, "bar": float}, rate=800))
pumps.filter("pressed", col.bar > 6.5).write("to the panel", io.Discard())
"""
QUERY = "from levels[height < 300 and valve == '2']\nselect tank, height, at\ninsert into shallow"
SETTINGS = 'promise = "1000/s"\nwithin = "200 ms"\nbest_effort = true\n'
VALLEY = """
from headwater import Flow, col, io


def readings(n):
    return {"tank": n % 24, "height": 40.0 + n * 7919 % 200}


flow = Flow("valley")
levels = flow.read("levels", io.Generate(readings, {"tank": int, "height": float}, rate=1500))
sound = levels.filter("sound", col.height >= 0)
sound.filter("low", col.height < 60).write("alarms", io.Discard())
litres = sound.select("litres", tank=col.tank, litres=col.height * 3.2)
litres.filter("much", col.litres > 500).write("archive", io.Discard())
"""
VALLEY_NET = """
name = "valley"
[classes.gateway]
cpu_ips = 5e9
memory_bytes = 1e9
access_bps = 2e7
price_per_hour = 0.02
[classes.server]
cpu_ips = 6e10
memory_bytes = 1.6e10
access_bps = 1e8
price_per_hour = 0.12
[classes.rented]
cpu_ips = 3e11
memory_bytes = 6.4e10
access_bps = 1e9
price_per_hour = 0.4
cloud = true
[wan]
kind = "coordinates"
base_s = 0.002
s_per_unit = 0.0002
[[zones]]
name = "dam"
x = 4
y = 62
devices = [{class = "gateway", sensors = ["levels"]}]
[[zones]]
name = "pump house"
x = 30
y = 30
devices = [{class = "gateway"}]
[[zones]]
name = "village"
x = 44
y = 74
devices = [{class = "server"}]
[[zones]]
name = "town hall"
x = 62
y = 8
devices = [{class = "server"}]
[[zones]]
name = "cloud"
x = 100
y = 46
devices = [{class = "rented"}]
"""
#: of each step, in seconds a record on a server: no gateway is fast enough for two of them, and the cloud is far and dear
COSTS = {"levels": 1e-6, "sound": 2e-5, "low": 1e-5, "alarms": 1e-6, "litres": 4e-4, "much": 3e-4, "archive": 2e-6}
VALLEY_PLAN = """
flow = "valley.py"
net = "valley.toml"
[placement]
levels = "dam"
sound = "dam"
low = "pump house"
alarms = "pump house"
litres = "village"
much = "cloud"
archive = "cloud"
"""


def main(seconds: float, only: str) -> None:
    """Take the pictures: all, or only those of `flows`, `sites` or a `plan`; flows are served for so long first."""
    TO.mkdir(exist_ok=True)
    with chromium() as browser:
        for what, take in (("flows", take_flows), ("sites", take_sites), ("plan", take_plan)):
            if only in ("", what):
                with tempfile.TemporaryDirectory() as name:
                    take(browser, Path(name), seconds)


def take_flows(browser: Any, folder: Path, seconds: float) -> None:
    """Serve flows for so long, and take pictures of them."""
    (folder / "tanks.py").write_text(TANKS.replace("RATE", "12000"))
    (folder / "rush.py").write_text(
        TANKS.replace("RATE", "900000")
        .replace('"tanks"', '"rush"')
        .replace(".jsonl", "2.jsonl")
        .replace(".csv", "2.csv")
    )
    (folder / "pumps.py").write_text(PROMISED)
    (folder / "pumps.toml").write_text(SETTINGS)
    with served(folder) as at:
        time.sleep(seconds)
        for theme in ("light", "dark"):
            page = _viewer(browser, theme)
            log_in(page, at.url, at.token)
            for picture, path, ready in (
                ("flow", "/flow/tanks", "g.node"),
                ("bottleneck", "/flow/rush", "g.node"),
                ("time", "/time/tanks", "canvas"),
                ("promises", "/promises", "tbody tr"),
                ("query", "/query/tanks", "textarea"),
                ("dead", "/dead/tanks", "tbody tr"),
            ):
                page.goto(at.url + path)
                page.wait_for_selector(ready)
                if picture == "query":
                    page.get_by_label("Query").fill(QUERY)
                    page.get_by_role("button", name="Ask", exact=True).click()
                    page.locator("[data-figure=matches]").wait_for()
                _take(page, f"{picture}-{theme}", whole=picture not in ("dead", "query"))
            page.goto(at.url + "/flow/tanks")
            page.locator('g.node[data-step="sound"]').click()
            page.get_by_role("button", name="Show the next few").click()
            page.get_by_text("given out").wait_for()
            _take(page, f"step-{theme}", whole=False)
            page.context.close()
        phone = browser.new_context(viewport={"width": 390, "height": 844}, device_scale_factor=2)
        page = phone.new_page()
        log_in(page, at.url, at.token)
        page.goto(at.url + "/flow/" + quote("tanks"))
        page.wait_for_selector("g.node")
        _take(page, "phone", whole=False)
        phone.close()


@contextmanager
def valley(folder: Path, *words: str) -> Iterator[Served]:
    """Have a command about sites show pages until the context ends."""
    log = folder / f"{words[0]}.log"
    command = [sys.executable, "-m", "headwater", *words, "--web", "--web-listen", "127.0.0.1:0"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file, cwd=folder)
    try:
        at = until(lambda: re.search(r"dashboard: (\S+)/login#(\S+)", log.read_text()), log)
        yield Served(at.group(1), at.group(2), process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def take_sites(browser: Any, folder: Path, seconds: float) -> None:
    """Run a flow at five sites, move a step, and take pictures of it."""
    for name, text in (("valley.py", VALLEY), ("valley.toml", VALLEY_NET), ("plan.toml", VALLEY_PLAN)):
        (folder / name).write_text(text)
    with valley(folder, "up", "valley.toml") as at:
        deploy = subprocess.Popen([sys.executable, "-m", "headwater", "deploy", "plan.toml"], cwd=folder)
        try:
            pages = {theme: _viewer(browser, theme) for theme in ("light", "dark")}
            for page in pages.values():
                log_in(page, at.url, at.token)
                page.get_by_text("valley is running at 4 sites").wait_for()
            subprocess.run([sys.executable, "-m", "headwater", "move", "litres", "town hall"], cwd=folder, check=True)
            time.sleep(min(8.0, seconds))  # rates are of five
            for theme, page in pages.items():
                _take(page, f"sites-{theme}")
                page.locator('g.node[data-site="town hall"]').click()
                _take(page, f"site-{theme}", whole=False)
                page.context.close()
        finally:
            deploy.send_signal(signal.SIGINT)
            deploy.wait(60)


def take_plan(browser: Any, folder: Path, seconds: float) -> None:
    """Plan the same flow, draw a front, move a step by hand, rehearse that, and take pictures of it."""
    for name, text in (("valley.py", VALLEY), ("valley.toml", VALLEY_NET)):
        (folder / name).write_text(text)
    shape = {"bytes_in": 32.0, "bytes_out": 32.0}
    costs = {name: StepProfile(time_s=time_s, **shape) for name, time_s in COSTS.items()}
    Profile("valley", "server", costs).write(folder / "profile.json")
    options = ("--rate", "1500", "--pin", "alarms=pump house", "--profile", "profile.json", "--time", "5")
    with valley(folder, "plan", "valley.py", "valley.toml", *options) as at:
        for theme in ("light", "dark"):
            page = _viewer(browser, theme)
            log_in(page, at.url, at.token)
            page.get_by_role("button", name="Plan", exact=True).click()
            page.locator('tr[data-key^="Fastest"]').wait_for()
            page.get_by_role("button", name="Draw the front").click()
            page.locator("canvas").wait_for()
            page.locator('tr[data-key^="Fastest"]').click()
            page.locator('[data-step="litres"]').drag_to(page.locator('[data-device="village"]'))
            page.locator('[data-device="village"] [data-step="litres"]').wait_for()
            page.get_by_role("button", name="Rehearse").click()
            page.get_by_text("of virtual time").wait_for()
            page.mouse.move(0, 0)
            _take(page, f"plan-{theme}")
            page.context.close()


def _viewer(browser: Any, theme: str) -> Any:
    context = browser.new_context(color_scheme=theme, viewport={"width": 1360, "height": 900}, device_scale_factor=1)
    page = context.new_page()
    page.set_default_timeout(120_000)
    return page


def _with_few_colours(picture: Any) -> Any:
    """Return a picture in a third of the bytes: the most frequent colours as they are, and some for those that are rare."""
    often = [colour for _, colour in sorted(picture.getcolors(2**24), reverse=True)[:192]]
    rare = picture.quantize(64, Image.Quantize.MAXCOVERAGE).getpalette()[: 3 * 64]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*(value for colour in often for value in colour), *rare])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def _take(page: Any, name: str, *, whole: bool = True) -> None:
    page.wait_for_timeout(2000)  # a second sample, and charts that have been painted
    page.screenshot(path=TO / f"{name}.png", full_page=whole)
    with Image.open(TO / f"{name}.png") as picture:
        small = _with_few_colours(picture.convert("RGB"))
    small.save(TO / f"{name}.png", optimize=True)
    print(f"docs/dashboard/{name}.png")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0, sys.argv[2] if len(sys.argv) > 2 else "")
