"""A flow gives the same on a cluster of separate processes as on the engine: nothing depends on local mode."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.spark.cluster import standalone

FLOW = '''
"""A file (read by tasks), a list (read by the driver), a function, a window, a table: what could depend on one machine."""

import os
from pathlib import Path

from headwater import Flow, Tumbling, agg, io

HERE, OUT = Path(__file__).parent, Path(os.environ["OUT"])
READING = {"id": str, "x": float, "at": "time"}


def doubled(record):
    return {**record, "x": 2 * record["x"], "where": os.getcwd()}


flow = Flow("spread")
file = flow.read("file", io.JsonLines(HERE / "readings.jsonl", READING))
twice = file.map("doubled", doubled, out={**READING, "where": str})
twice.write("places", io.ParquetTable(OUT / "places", by="id"))
sums = twice.event_time("timed", "at", lateness="5 s").key_by("id").window("sums", Tumbling("10 s"), x=agg.sum("x"))
sums.write("sums out", io.Csv(OUT / "sums.csv"))
listed = flow.read("list", io.Items([{"id": "z", "x": 1.0, "at": i} for i in range(400)], READING))
listed.write("list out", io.Csv(OUT / "list.csv"))
'''


def test_a_flow_runs_on_a_standalone_cluster(tmp_path, monkeypatch):
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "spread.py").write_text(FLOW)
    with (tmp_path / "readings.jsonl").open("w") as file:
        for i in range(3000):
            file.write(json.dumps({"id": f"s{i % 5}", "x": i * 0.5, "at": i * 33_000}) + "\n")
        file.write("no record\n")
    monkeypatch.setenv("OUT", str(tmp_path / "far"))
    with standalone(workers=1, cores=1) as cluster:
        cluster.add_worker()
        command = [Path(sys.executable).with_name("headwater"), "run", "spread.py", "--on", "spark", "--json"]
        short_lived = f"spark.executor.extraJavaOptions={os.environ['SPARK_DAEMON_JAVA_OPTS']}"  # as all of these tests
        done = subprocess.run(
            [*command, "--master", cluster.url, "--conf", short_lived, "--conf", "spark.cores.max=1"],
            cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        table = ds.dataset(tmp_path / "far" / "places", partitioning="hive").to_table()
        places = set(map(Path, table["where"].to_pylist()))
        assert len(table) == 3000
        assert places
        assert all(cluster.folder in place.parents for place in places)  # not in the driver
        assert cluster.executors() >= 1
        cluster.kill_worker(0)  # which the master notices, or this does not end
    assert report["records_in"] == 3401
    assert report["dead_letters"] == 1
    monkeypatch.setenv("OUT", str(tmp_path / "near"))
    engine.run(find_flow(f"{tmp_path}/spread.py"))
    for name in ("sums.csv", "list.csv"):
        far, near = ((tmp_path / place / name).read_text().splitlines() for place in ("far", "near"))
        assert sorted(far) == sorted(near)
