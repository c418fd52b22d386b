"""A process stays as small as it is, however many flows it has run, and a plain flow is small."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from headwater import engine, io
from headwater.data.jit import wait_until_compiled
from headwater_bench.riot.etl import etl
from headwater_bench.riot.sources import generated

def resident_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

source = generated("CITY", 1e6, count=20_000)

def once():
    report = engine.run(etl(source, publish=io.Discard()))
    assert report.last.records_out["publish"] == 20_000
    wait_until_compiled()

for _ in range(12):  # until what is freed and kept for the next run has found its size
    once()
def growth_kb():
    before = resident_kb()
    for _ in range(14):
        once()
    return resident_kb() - before

# What a run has at once hangs on how busy the machine is, and is kept: that grows once, a leak each time.
print(min(growth_kb() for _ in range(3)))
"""


def test_fourteen_more_runs_do_not_make_a_process_larger():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10_000  # less than a megabyte for each
