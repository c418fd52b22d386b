"""A flow gives the same on a cluster of separate processes as on the engine: nothing depends on local mode."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.processes import family, kill
from headwater.spark.cluster import standalone
from waiting import wait_until

FLOW = '''
"""A file (read by tasks), a list (read by the driver), a function, a window, a table: what could depend on one machine."""

import os
from pathlib import Path

from headwater import Flow, Tumbling, agg, io

HERE, OUT = Path(__file__).parent, Path(os.environ["OUT"])
READING = {"id": str, "x": float, "at": "time"}


def doubled(record):
    import __main__

    return {**record, "x": 2 * record["x"], "where": os.getcwd(), "program": getattr(__main__.__spec__, "name", "")}


flow = Flow("spread")
file = flow.read("file", io.JsonLines(HERE / "readings.jsonl", READING))
twice = file.map("doubled", doubled, out={**READING, "where": str, "program": str})
twice.write("places", io.ParquetTable(OUT / "places", by="id"))
sums = twice.event_time("timed", "at", lateness="5 s").key_by("id").window("sums", Tumbling("10 s"), x=agg.sum("x"))
sums.write("sums out", io.Csv(OUT / "sums.csv"))
listed = flow.read("list", io.Items([{"id": "z", "x": 1.0, "at": i} for i in range(400)], READING))
listed.write("list out", io.Csv(OUT / "list.csv"))
'''


@pytest.mark.thorough
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
        assert set(table["program"].to_pylist()) == {"headwater.spark.daemon"}  # which has loaded what tasks need
        assert cluster.executors() >= 1
        cluster.kill_worker(0)  # which the master notices, or this does not end
    assert report["records_in"] == 3401
    assert report["dead_letters"] == 1
    monkeypatch.setenv("OUT", str(tmp_path / "near"))
    engine.run(find_flow(f"{tmp_path}/spread.py"))
    for name in ("sums.csv", "list.csv"):
        far, near = ((tmp_path / place / name).read_text().splitlines() for place in ("far", "near"))
        assert sorted(far) == sorted(near)


LOST = '''
"""A step by key that waits in the middle of the only micro-batch, so that an executor can be lost amid it."""

import os
import time
from pathlib import Path

from headwater import Flow, io

HERE = Path(__file__).parent


def counted(state, record):
    if not state:
        begun = HERE / "begun" / f"{os.getpid()}-{record['id']}"
        begun.touch()
        until = time.monotonic() + 300
        while len(list((HERE / "begun").iterdir())) > 20 and not (HERE / "killed").exists():
            assert time.monotonic() < until, "nobody was killed"
            time.sleep(0.02)
    count = (state or 0) + 1
    return count, {"id": record["id"], "n": record["n"], "count": count}


flow = Flow("lost")
read = flow.read("file", io.JsonLines(HERE / "readings.jsonl", {"id": str, "n": int}))
out = read.key_by("id").process("counted", counted, out={"id": str, "n": int, "count": int})
out.write("counts", io.JsonLines(HERE / "counts.jsonl"))
'''


@pytest.mark.thorough
def test_a_micro_batch_goes_on_where_executors_are_lost_amid_it(tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "lost.py").write_text(LOST)
    rows = [{"id": f"s{n % 40}", "n": n} for n in range(400)]
    (tmp_path / "readings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with standalone(workers=2, cores=1) as cluster:
        command = [Path(sys.executable).with_name("headwater"), "run", "lost.py", "--on", "spark", "--json"]
        running = subprocess.Popen(
            [*command, "--master", cluster.url, "--checkpoint", "kept", "--available-now", "--buckets", "8"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            # half of the keys pass at once: some buckets are done when the next ones wait, on both executors
            wait_until(lambda: len(list((tmp_path / "begun").iterdir())) >= 22, "steps that wait")
            for executor in cluster.executor_processes():  # one of them has what was made for the step by key
                kill(family(executor))
            (tmp_path / "killed").touch()
            out, err = running.communicate(timeout=300)
        finally:
            running.kill()
            running.communicate()
    assert running.returncode == 0, err
    assert json.loads(out)["dead_letters"] == 0
    written = [json.loads(line) for line in (tmp_path / "counts.jsonl").read_text().splitlines()]
    assert sorted(row["n"] for row in written) == list(range(400))
    assert all(row["count"] == row["n"] // 40 + 1 for row in written)
