"""A base install has no Arrow: everything but Parquet works, with the same results, and Parquet says what is missing."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sqlite3, sys
if sys.argv[1] == "without":
    sys.modules["pyarrow"] = None
from headwater import Flow, col, engine, io

levels = [{"tank": name, "height": 10.0 * n} for n, name in enumerate(["nørth", "south", "Straße", ""])]
kept = io.Collect()
flow = Flow("levels")
read = flow.read("read", io.Items(levels))
read.write("csv", io.Csv("levels.csv"))
read.write("json", io.JsonLines("levels.jsonl"))
read.write("table", io.Sqlite("levels.db", "levels"))
texts = read.select(
    "texts",
    upper=col.tank.upper(),
    size=col.tank.length(),
    has=col.tank.contains("th"),
    ends=col.tank.ends_with("h"),
    replaced=col.tank.replace("th", "d"),
    cut=col.tank.substring(1, 3),
    joined=col.tank + "!",
    same=col.tank == "south",
    before=col.tank < "o",
)
texts.filter("long", col.size > 4).write("keep", kept)
engine.run(flow)
print(kept.records)
print(open("levels.csv").read(), open("levels.jsonl").read())
print(sqlite3.connect("levels.db").execute("select * from levels").fetchall())
"""


def output(how: str, folder) -> str:
    folder.mkdir()
    run = [sys.executable, "-W", "error", "-c", PROGRAM, how]
    done = subprocess.run(run, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_tables_and_functions_of_text_are_the_same_without_arrow(tmp_path):
    assert output("without", tmp_path / "without") == output("with", tmp_path / "with")


def test_parquet_says_which_extra_it_needs(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from headwater import Flow, engine, io\n"
        "from headwater.errors import FlowError\n"
        "flow = Flow('f'); flow.read('r', io.Items([{'x': 1.0}])).write('w', io.Parquet('x.parquet'))\n"
        "for act in (lambda: engine.run(flow), lambda: io.Parquet('y.parquet').schema):\n"
        "    try:\n        act()\n    except FlowError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (
        done.stdout.splitlines() == ["Parquet and Arrow need the package pyarrow: pip install 'headwater[arrow]'"] * 2
    )
