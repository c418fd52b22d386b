"""What the experiment on a cluster tells of its laps, and when it kills a worker; streams on Spark are stood in for."""

import os
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import RunError
from headwater.flow.ranges import RangeRequest, Sizes
from headwater.rate import cgroups
from headwater.rate.process import used_s
from headwater_bench.experiments import cluster as bench
from headwater_bench.experiments import processors
from headwater_bench.experiments.cluster_stream import GatedFile, Mark


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


class Stream:
    """Is in with a lap at once, in four micro-batches: of the first two laps each takes a second more."""

    def __init__(self, done, found, master, flow, path, folder, buckets, batch_bytes, place, keepers):
        self._done, self._form, self._path, self._lap = done, folder.name, path, 0
        assert len(keepers) == (0 if folder.name == "local" else 3)
        assert 900 * 100 < 4 * batch_bytes < 900 * 1000
        done.append(f"{flow}, {folder.name} on {master.split(':')[0]} in {buckets}")
        self.table = folder
        folder.mkdir()
        pq.write_table(pa.table({"result": found[folder.name], "n": [1, 2]}), folder / "part.parquet")

    def lap(self, up_to, count, hear=lambda read: None):
        assert self._path.read_bytes()[:up_to].count(b"\n") == count == 900 * (self._lap + 1)
        self._done.append(f"{self._form} {self._lap}")
        step_s = {"local": 2.0, "one worker": 1.25, "cluster": 1.0}[self._form] + (self._lap < 2)
        self._lap += 1
        marks = [
            Mark(at * step_s, count - left, {**dict.fromkeys(processors.KINDS, 9.0), "driver": -left / 1000})
            for at, left in enumerate((600, 500, 300, 0))
        ]
        for mark in marks:
            hear(mark.read)
        return marks

    def finish(self):
        self._done.append(f"{self._form} ends")
        return [{"triggerExecution": 1000 + at, "addBatch": 900} for at in range(5 * bench._BATCHES)]


@pytest.fixture
def runs(monkeypatch):
    """Stand in for a cluster, and for streams on it that find what `found` has; return what was done."""
    done, found = [], {"local": ["b", "a"], "one worker": ["b", "a"], "cluster": ["b", "a"]}

    @contextmanager
    def standalone(workers):
        done.append(f"{workers} workers")
        yield Cluster(done)

    monkeypatch.setattr(cgroups, "find", lambda: None)
    monkeypatch.setattr(bench, "standalone", standalone)
    monkeypatch.setattr(bench, "WARM_UP", 1)
    monkeypatch.setattr(bench, "Stream", lambda *args, **named: nullcontext(Stream(done, found, *args, **named)))
    return done, found


def test_warm_laps_in_turn_are_compared_and_a_cluster_is_changed_in_the_last(runs, tmp_path):
    answer = bench.run(messages=900, repeats=2, output=tmp_path)
    assert answer["over_local"] == 2
    assert answer["over_one_worker"] == 1.25
    assert answer["spread"] == {"local": [2.0, 2.0], "one worker": [1.25, 1.25]}
    assert answer["rates"] == {"local": 100, "one worker": 160, "cluster": 200}  # 600 in three steps
    assert answer["cold"]["over_local"] == 1.5
    assert answer["rates_by_lap"]["local"] == [67, 67, 100, 100]  # one cold, one to warm up, two that count
    assert answer["equal"] == {"one worker": True, "cluster": True}
    assert runs[0][0] == "stats, local on local[1] in 1"
    forms = ("local", "one worker", "cluster")
    taken = [each for each in runs[0] if each in {f"{form} {lap}" for form in forms for lap in (1, 2, 3)}]
    assert taken == [f"{form} {lap}" for lap in (1, 2, 3) for form in forms]
    assert runs[0][-6:] == ["one worker 4", "one worker ends", "cluster 4", "kill 0", "join", "cluster ends"]
    spent = {**dict.fromkeys(processors.KINDS, 0.0), "driver": 1000.0}
    assert [answer["processor_us"][form] for form in forms] == [spent, spent, spent]
    assert (answer["changed_at"], answer["executors"]) == (3900, 3)
    assert answer["batch_ms"]["cluster"] == {"all": 1006, "without_tasks": 106}  # of the two laps that count: 4 to 7
    told = bench.table(answer)
    assert "2.0 times (2.0 to 2.0) local[1] (100/s), 1.25 times (1.25 to 1.25) one worker (160/s)" in told
    assert "cold, the first lap: 100/s on two workers, 1.5 times" in told
    assert "unbounded" in told
    assert told.endswith("yes")
    assert (tmp_path / "cluster.csv").read_text().count("\n") == 1 + 3 * 4


@pytest.mark.parametrize("other", [["b", "c"], ["a", "b"], ["b", "a", "a"]])
def test_other_results_are_told(runs, other, monkeypatch):
    class Other(Stream):
        def finish(self):
            told = super().finish()
            if self._form == "cluster":
                numbers = [1, 2, 2][: len(other)]
                pq.write_table(pa.table({"result": other, "n": numbers}), self.table / "part.parquet")
            return told

    done, found = runs
    monkeypatch.setattr(bench, "Stream", lambda *args, **named: nullcontext(Other(done, found, *args, **named)))
    answer = bench.run(messages=900, repeats=1)
    assert answer["equal"] == {"one worker": True, "cluster": False}
    assert bench.table(answer).endswith("NO")


def test_results_are_the_same_in_any_order_and_in_any_files(tmp_path):
    for name, parts in (("one", [[(1, "x"), (2, None), (3, "")]]), ("other", [[(3, "")], [(2, None), (1, "x")]])):
        (tmp_path / name).mkdir()
        for number, rows in enumerate(parts):
            table = pa.table({"n": [n for n, _ in rows], "result": [result for _, result in rows]})
            pq.write_table(table, tmp_path / name / f"{number}.parquet")
    one, other = (bench._records(tmp_path / name) for name in ("one", "other"))
    assert len(set(one)) == 3
    assert (one == other).all()
    pq.write_table(pa.table({"n": [3], "result": pa.array([None], pa.string())}), tmp_path / "other" / "0.parquet")
    assert len(set(one) & set(bench._records(tmp_path / "other"))) == 2  # what is missing is not what is empty


def test_a_file_is_read_up_to_its_gate_and_no_further(tmp_path):
    (tmp_path / "messages").write_text("".join(f"message {n}\n" for n in range(10)))
    gate = tmp_path / "gate"
    gate.write_text("0")
    ranges = GatedFile(tmp_path / "messages", gate).ranges(RangeRequest(Sizes(2, batch_bytes=15)))
    start = ranges.start()
    assert ranges.advance(start) == start
    gate.write_text("30")
    first = ranges.advance(start)
    second = ranges.advance(first)
    assert (first["byte"], second["byte"], second["line"], second["ended"]) == (20, 30, 3, False)
    assert ranges.advance(second) == second
    assert ranges.sizes.batch_bytes == 15
    gate.write_text("100")
    assert ranges.advance(second)["byte"] == 50


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
        assert found["their compilers"] == 0
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


def test_threads_that_compile_are_told_apart_from_what_java_runs(monkeypatch):
    compiling = (
        "import ctypes, sys, threading, time\n"
        "def spin():\n"
        "    ctypes.CDLL(None).prctl(15, b'C2 CompilerThre', 0, 0, 0)\n"  # its name, as Java gives it
        "    until = time.thread_time() + 0.3\n"
        "    while time.thread_time() < until: pass\n"
        "    print(flush=True); sys.stdin.read()\n"
        "threading.Thread(target=spin).start()\n"
    )
    command = [sys.executable, "-c", compiling]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as java:
        monkeypatch.setattr(processors, "is_java", lambda pid: pid == java.pid)  # others are those of tests before
        java.stdout.readline()
        looking = processors.Processors(os.getpid())
        found = looking.look()
        assert found["its compilers"] >= 0.29
        assert found["driver's Java"] + found["its compilers"] == pytest.approx(used_s(java.pid), abs=0.02)
        java.stdin.close()
        java.wait()
    assert looking.look()["its compilers"] == found["its compilers"]
