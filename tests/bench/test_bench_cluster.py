"""What the experiment on a cluster tells of its runs, and when it kills a worker; runs of Spark's are stood in for."""

from contextlib import contextmanager

import pytest

from headwater_bench.experiments import cluster as bench


class Cluster:
    """Notes what is done to it."""

    url = "spark://there:7077"

    def __init__(self, done):
        self._done = done

    def kill_worker(self, number):
        self._done.append(f"kill {number}")

    def add_worker(self):
        self._done.append("join")

    def executors(self):
        return 3


@pytest.fixture
def runs(monkeypatch):
    """Stand in for a cluster, and for runs on it that are twice as fast and find what `found` has; return what was done."""
    done, found = [], {"local": "b\na\n", "cluster": "a\nb\n", "changed": "b\na\n"}

    @contextmanager
    def standalone(workers):
        done.append(f"{workers} workers")
        yield Cluster(done)

    def run(master, path, out, hear=lambda read: None):
        done.append(f"{out.stem} on {master.split(':')[0]}")
        assert path.read_bytes().count(b"\n") == 900
        out.write_text(found[out.stem])
        step_s = 2.0 if master == "local[1]" else 1.0
        told = [(at * step_s, read) for at, read in enumerate((0, 250, 400, 400, 700, 900, 900))]
        for _, read in told:
            hear(read)
        return told

    monkeypatch.setattr(bench, "standalone", standalone)
    monkeypatch.setattr(bench, "_run", run)
    return done, found


def test_a_cluster_is_compared_with_one_core_and_changed_amid_a_run(runs, tmp_path):
    answer = bench.run(messages=900, output=tmp_path)
    assert answer["over_local"] == 2
    assert answer["rates"] == {"local": round(500 / 6), "cluster": round(500 / 3)}  # from 400 to 900
    assert answer["equal"] == {"cluster": True, "changed": True}
    assert runs[0][-4:] == ["2 workers", "changed on spark", "kill 0", "join"]
    assert (answer["killed_at"], answer["joined_at"], answer["executors"]) == (400, 400, 3)
    assert "2.0 times as many" in bench.table(answer)
    assert (tmp_path / "cluster.csv").read_text().count("\n") == 3


def test_other_results_are_told(runs):
    runs[1]["changed"] = "a\n"
    answer = bench.run(messages=900)
    assert answer["equal"] == {"cluster": True, "changed": False}
    assert bench.table(answer).endswith("NO")
