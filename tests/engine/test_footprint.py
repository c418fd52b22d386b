"""A process stays as small as it is, however many flows it has run, and a plain flow is small."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from headwater import Count, Flow, agg, engine, io

def resident_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

def once():
    flow = Flow("rooms")
    make = lambda n: {"room": [f"room {i % 50}" for i in n], "level": n * 1.0}
    rooms = flow.read("read", io.Generate(make, {"room": str, "level": float}, 1e6, count=20_000)).key_by("room")
    rooms.window("tops", Count(5), top=agg.max("level")).write("keep", io.Discard())
    assert engine.run(flow).last.records_out == {"keep": 4_000}

for _ in range(4):
    once()
before = resident_kb()
for _ in range(14):
    once()
print(resident_kb() - before)
"""


def test_fourteen_more_runs_do_not_make_a_process_larger():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10_000
