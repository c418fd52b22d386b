"""What the experiment on a cluster tells of its runs, and when it kills a worker; runs of Spark's are stood in for."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import RunError
from headwater.rate import cgroups
from headwater_bench.experiments import cluster as bench
from headwater_bench.experiments import processors


class Cluster:
    """Notes what is done to it."""

    url = "spark://there:7077"

    def __init__(self, done):
        self._done = done

    def kill_worker(self, number):
        self._done.append(f"kill {number}")

    def add_worker(self):
        self._done.append("join")

    def worker_processes(self):
        return [11, 12]

    def keepers(self):
        return [10, 11, 12]

    def executors(self):
        return 3


@pytest.fixture
def runs(monkeypatch):
    """Stand in for a cluster, and for runs on it that are twice as fast and find what `found` has; return what was done."""
    done, found = [], {"local": ["b", "a"], "one worker": ["a", "b"], "cluster": ["a", "b"], "changed": ["b", "a"]}

    @contextmanager
    def standalone(workers):
        done.append(f"{workers} workers")
        yield Cluster(done)

    def run(master, flow, path, out, buckets, place=lambda pid: None, hear=lambda read: None, keepers=()):
        form = out.name.rsplit("-", 1)[0]
        done.append(f"{flow}, {form} on {master.split(':')[0]} in {buckets}")
        assert len(keepers) == (3 if form in ("one worker", "cluster") else 0)
        assert path.read_bytes().count(b"\n") == 900
        out.mkdir()
        pq.write_table(pa.table({"result": found[form]}), out / "part.parquet")
        step_s = {"local": 2.0, "one worker": 1.25}.get(form, 1.0)
        told = [
            (at * step_s, read, {**dict.fromkeys(processors.KINDS, 9.0), "driver": read / 1000})
            for at, read in enumerate((0, 250, 400, 400, 700, 900, 900))
        ]
        for _, read, _ in told:
            hear(read)
        return told

    monkeypatch.setattr(cgroups, "find", lambda: None)
    monkeypatch.setattr(bench, "standalone", standalone)
    monkeypatch.setattr(bench, "_run", run)
    return done, found


def test_a_cluster_is_compared_with_one_core_and_changed_amid_a_run(runs, tmp_path):
    answer = bench.run(messages=900, output=tmp_path)
    assert answer["over_local"] == 2
    assert answer["over_one_worker"] == 1.25
    rates = {"local": round(500 / 6), "one worker": round(500 / 3.75), "cluster": round(500 / 3)}  # from 400 to 900
    assert answer["rates"] == rates
    assert answer["equal"] == {"one worker": True, "cluster": True, "changed": True}
    assert runs[0][-4:] == ["2 workers", "stats, changed on spark in 2", "kill 0", "join"]
    assert runs[0][0] == "stats, local on local[1] in 1"
    spent = {**dict.fromkeys(processors.KINDS, 0.0), "driver": 1000.0}  # a thousandth of a second for each message
    assert answer["processor_us"] == dict.fromkeys(("local", "one worker", "cluster"), spent)
    assert (answer["killed_at"], answer["joined_at"], answer["executors"]) == (400, 400, 3)
    assert "2.0 times local[1], 1.25 times one worker" in bench.table(answer)
    assert "unbounded" in bench.table(answer)
    assert "two workers               1000.0                 0.0" in bench.table(answer)
    assert (tmp_path / "cluster.csv").read_text().count("\n") == 4


def test_other_results_are_told(runs):
    runs[1]["changed"] = ["a"]
    answer = bench.run(messages=900)
    assert answer["equal"] == {"one worker": True, "cluster": True, "changed": False}
    assert bench.table(answer).endswith("NO")


def test_a_flow_that_is_not_there_is_refused():
    with pytest.raises(RunError, match=r"there is no flow 'stat'.*did you mean 'stats'"):
        bench.run(flow="stat")


def test_processor_time_counts_by_who_took_it_and_stays_when_a_process_ends():
    spin = "import time, sys\nwhile time.process_time() < 0.3: pass\nprint(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", spin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        keeper.stdout.readline()
        looking = processors.Processors(os.getpid(), [keeper.pid])
        found = looking.look()
        assert found["master and workers"] >= 0.29
        assert found["driver"] > 0
        assert found["executors' Java"] == 0
        keeper.stdin.close()
        keeper.wait()
    assert looking.look()["master and workers"] == found["master and workers"]


def test_a_machine_that_is_played_has_its_share_and_no_more():
    groups = cgroups.find()
    if groups is None or groups.version != 1:
        pytest.skip("no control groups of version 1 can be made here")
    with subprocess.Popen(["sleep", "60"]) as process, bench._Machines() as machines:
        machines.bound(process.pid)
        lines = [line.split(":") for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()]
        folder = groups.base / next(Path(group).name for _, parts, group in lines if "cpu" in parts.split(","))
        quota, period = (int((folder / f"cpu.cfs_{what}_us").read_text()) for what in ("quota", "period"))
        assert quota / period == pytest.approx(machines.cores, rel=0.01)
        process.kill()
        process.wait()
    assert not folder.exists()
