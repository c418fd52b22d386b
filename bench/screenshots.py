"""Pictures of every page of the dashboard, light and dark, into docs/dashboard: `make screenshots`.

Flows of a water works run for a while first, one of them with more than it can do, one with records that break it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from headwater_bench.experiments.web import chromium, log_in, served

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


def main(seconds: float) -> None:
    """Serve the flows for so long, and take the pictures."""
    TO.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
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
                context = browser.new_context(
                    color_scheme=theme, viewport={"width": 1360, "height": 900}, device_scale_factor=1
                )
                page = context.new_page()
                page.set_default_timeout(60_000)
                log_in(page, at)
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
                        page.get_by_role("button", name="Ask the next records").click()
                        page.locator("[data-figure=matches]").wait_for()
                    _take(page, f"{picture}-{theme}", whole=picture not in ("dead", "query"))
                page.goto(at.url + "/flow/tanks")
                page.locator('g.node[data-step="sound"]').click()
                page.get_by_role("button", name="Show the next few").click()
                page.get_by_text("given out").wait_for()
                _take(page, f"step-{theme}", whole=False)
                context.close()
            phone = browser.new_context(viewport={"width": 390, "height": 844}, device_scale_factor=2)
            page = phone.new_page()
            log_in(page, at)
            page.goto(at.url + "/flow/" + quote("tanks"))
            page.wait_for_selector("g.node")
            _take(page, "phone", whole=False)
            phone.close()


def _take(page: Any, name: str, *, whole: bool = True) -> None:
    page.wait_for_timeout(2500)  # a second sample, and charts that have been painted
    page.screenshot(path=TO / f"{name}.png", full_page=whole)
    with Image.open(TO / f"{name}.png") as picture:  # a page has few colours, and a repository is for text
        small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(TO / f"{name}.png", optimize=True)
    print(f"docs/dashboard/{name}.png")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
