"""No record waits for a compiler, and a flow that has run before has its kernels before its first record comes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headwater.data.jit import COMPILED

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
ENDINGS = """
import sys
from pathlib import Path
from headwater import Flow, engine, io
from headwater.data.jit import service

def wait(kernel, signature):
    raise AssertionError(f"something waits for {kernel}")

service.from_cache = lambda kernel, signature: None
service.ask = lambda kernel, signature: None
service.wait_for = wait

ending, folder = sys.argv[1], Path(sys.argv[2])
(folder / "rooms.jsonl").write_text('{"room":"hall","level":1}\\n{"room":"attic","level":2}\\n' * 5)
flow = Flow("rooms")
rooms = flow.read("rooms", io.JsonLines(folder / "rooms.jsonl", {"room": str, "level": int}, follow=ending == "stopped"))
rooms.write("keep", io.ParquetTable(folder / "by room", by="room"))  # written in files when a part or all of it ends
run = engine.start(flow, on="RUNNER", checkpoint=None if ending == "closed" else folder / "kept", every="1 h")
while ending == "stopped" and run.sample().records_out["keep"] < 10:
    assert run.wait(0.01) is None
run.stop() if ending == "stopped" else None
report = run.wait()
print(report.left, report.dead_letters, sorted(path.name for path in (folder / "by room").glob("room=*")))
"""
FLOW = """
from headwater import Flow, Tumbling, agg, engine, io
from headwater.data.jit import service, wait_until_compiled
from headwater.engine.source import SourceThread

before = []
opened = SourceThread.open
SourceThread.open = lambda self, position: before.append(len(service.uses)) or opened(self, position)

flow = Flow("tanks")
levels = flow.read("levels", io.JsonLines("levels.jsonl", {"tank": str, "height": float, "at": "time"}))
by_tank = levels.event_time("clock", "at", lateness="5 s").key_by("tank")
by_tank.window("minute", Tumbling("1 min"), mean=agg.mean("height")).write("archive", io.Csv("minutes.csv"))
engine.run(flow)
wait_until_compiled()
print(before[0], len(service.uses))
"""


@pytest.mark.parametrize("runner", ["engine", "threads"])
def test_a_flow_ends_although_the_compiler_never_does(runner):
    run = [sys.executable, "-W", "error", "-c", PROGRAM.replace("RUNNER", runner)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0 [12.0, 13.0, 14.0, 27.0, 28.0, 29.0] True", done.stderr


@pytest.mark.parametrize("runner", ["engine", "threads"])
@pytest.mark.parametrize("ending", ["closed", "saved", "stopped"])
def test_what_is_written_when_a_run_ends_waits_for_no_compiler(runner, ending, tmp_path):
    run = [sys.executable, "-W", "error", "-c", ENDINGS.replace("RUNNER", runner), ending, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0 0 ['room=attic', 'room=hall']", done.stderr


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled without Numba")
@pytest.mark.parametrize("linker", ["on", "off"])
def test_all_kernels_of_a_flow_that_has_run_before_are_loaded_before_its_sources_open(tmp_path, linker):
    lines = [f'{{"tank":"t{i % 3}","height":{i}.5,"at":"2026-01-01T00:{i:02}:00Z"}}' for i in range(30)]
    (tmp_path / "levels.jsonl").write_text("\n".join(lines) + "\n")
    env = os.environ | {
        "HEADWATER_CACHE": str(tmp_path / "cache"),
        "HEADWATER_LINKER": linker,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    seen = []
    for _ in range(2):
        run = [sys.executable, "-c", FLOW]
        done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen.append(tuple(map(int, done.stdout.split())))
    (_, used), (loaded, used_again) = seen
    assert 0 < used == loaded == used_again
