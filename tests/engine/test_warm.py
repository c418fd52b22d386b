"""No record waits for a compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from headwater import Count, Flow, agg, engine, io
from headwater.data.jit import service

def wait(kernel, signature):
    raise AssertionError(f"something waits for {kernel}")

asked = set()
service.from_cache = lambda kernel, signature: None
service.ask = lambda kernel, signature: asked.add(kernel)
service.wait_for = wait

kept = io.Collect()
flow = Flow("rooms")
rows = [{"room": f"room {i % 3}", "level": float(i)} for i in range(30)]
rooms = flow.read("read", io.Items(rows)).key_by("room")
rooms.window("tops", Count(5), parallel=2, top=agg.max("level")).write("keep", kept)
report = engine.run(flow, on="RUNNER")
print(report.dead_letters, sorted(row["top"] for row in kept.records), bool(asked))
"""


@pytest.mark.parametrize("runner", ["engine", "threads"])
def test_a_flow_ends_although_the_compiler_never_does(runner):
    run = [sys.executable, "-W", "error", "-c", PROGRAM.replace("RUNNER", runner)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0 [12.0, 13.0, 14.0, 27.0, 28.0, 29.0] True", done.stderr
