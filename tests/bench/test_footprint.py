"""What the experiment on size tells: each figure under a name of its own; the runs themselves are stood in for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater_bench.experiments import footprint as bench
from waiting import PATIENCE_S, wait_until


@pytest.fixture
def runs(monkeypatch):
    """Stand in for all that is run; return the commands that would have been."""
    commands = []

    def started(command, watch_s=(0.0, 0.0), stdout=None):
        commands.append(command)
        if stdout is not None:
            stdout.write(json.dumps({"latency_ms": {"p99": 17.5}}).encode())
        return {"mb": 40.0 + 70.0 * ("riot:etl" in command), "seconds": 0.2, "cpu": 0.07}

    monkeypatch.setattr(bench, "_started", started)
    monkeypatch.setattr(bench, "_wall", lambda arguments: 1.0)
    monkeypatch.setattr(bench, "_wait_for_cache", lambda arguments: None)
    monkeypatch.setattr(bench, "_cold_first_output_s", lambda: 0.7)
    monkeypatch.setattr(bench, "_cold_run", lambda: {"p99_ms": 90.0, "delivered": 1.0, "seconds": 12.0})
    return commands


def test_each_figure_has_a_name_of_its_own(runs, tmp_path):
    answer = bench.run(output=tmp_path)
    assert (answer["etl_mb"], answer["trivial_mb"], answer["help_mb"]) == (110, 40, 40)
    assert (answer["help_s"], answer["cold_first_output_s"]) == (0.2, 0.7)
    assert (answer["cpu_at_1000"], answer["p99_ms_at_1000"]) == (0.07, 17.5)
    assert answer["install_mb"] > 20
    assert len(runs) == 9  # three of each
    assert "17.5 ms, p99 of that" in bench.table(answer)
    assert (tmp_path / "footprint.txt").read_text() == bench.table(answer) + "\n"
    assert set(named(answer)) == set(answer) - {"machine"}


def named(answer):
    """Return the names of the figures that the table shows, each with its value."""
    return [name for name, value in answer.items() if f"{value:>9} " in bench.table(answer)]


def test_a_command_is_measured_while_it_runs():
    program = "import time; block = bytearray(60_000_000); time.sleep(0.1); print('{}')"
    told = bench._started([sys.executable, "-c", program], watch_s=(0.0, 0.05))
    assert told["mb"] > 60
    assert told["seconds"] > 0
    assert told["cpu"] >= 0
    with pytest.raises(AssertionError, match="ended with 3"):
        bench._started([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_cache_is_removed_once_nobody_compiles_for_it_any_more():
    code = "import os, sys, time\nfor n in range(30):\n open(f'{sys.argv[1]}/{n}', 'w').close()\n time.sleep(0.01)"
    with bench._empty_cache() as cache:
        assert list(Path(cache).iterdir()) == []
        environment = os.environ | {"HEADWATER_CACHE": cache}
        process = subprocess.Popen([sys.executable, "-c", code, cache], env=environment, start_new_session=True)
        wait_until(lambda: bench._has_cache(Path(f"/proc/{process.pid}"), cache), "a process with an environment")
    assert process.wait(PATIENCE_S) == 0  # all that it wrote had a folder
    assert not Path(cache).exists()
