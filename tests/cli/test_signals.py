"""Signals that come while a run is still being started."""

import json
import os
import signal
import subprocess
import sys

import pytest

from headwater import Flow, engine, io
from headwater.cli.signals import stop_on_signals
from headwater.engine.lanes.child import other_threads
from waiting import PATIENCE_S


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_run_is_there_drains_it_as_soon_as_it_is(number, capfd):
    flow, seen = Flow("endless"), io.Collect()
    flow.read("r", io.Generate(lambda n: {"n": n}, {"n": int}, rate=1000)).write("w", seen)
    with stop_on_signals() as started:
        os.kill(os.getpid(), number)
        run = engine.start(flow)
        started(run)
        report = run.wait(PATIENCE_S)
    assert report is not None
    assert report.left == 0
    assert report.last.records_in == len(seen.records)
    assert "once more to leave now" in capfd.readouterr().err


def test_a_signal_before_lanes_are_there_starts_no_thread_beside_which_they_could_not_be_forked(capfd):
    with stop_on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert other_threads() == []
    assert "stopping as soon as it has started" in capfd.readouterr().err


def test_a_second_signal_does_not_wait_for_the_start():
    with stop_on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_interrupt_while_modules_are_loaded_ends_it_without_a_traceback(tmp_path):
    """On a small device that takes seconds."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = subprocess.run(
        [sys.executable, "-m", "headwater", "--version"],
        preexec_fn=_heed_interrupts,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_a_sigterm_while_modules_are_loaded_waits_until_they_are(tmp_path):
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nraise SystemExit(7)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "headwater", "run", "flow.py", "--promise", "10/s"]
    assert subprocess.run(command, env=environment, check=False).returncode == 7


@pytest.mark.parametrize("promise", [[], ["--promise", "1000/s"]])
def test_a_run_that_is_told_to_end_before_it_has_begun_is_drained(tmp_path, promise):
    (tmp_path / "flow.py").write_text(
        "import os, signal\nfrom headwater import Flow, io\nos.kill(os.getpid(), signal.SIGTERM)\nflow = Flow('endless')\n"
        "flow.read('r', io.Generate(lambda n: {'n': n}, {'n': int}, rate=1000)).write('w', io.Discard())\n"
    )
    command = [sys.executable, "-m", "headwater", "run", "flow.py", "--json", *promise]
    apart = {"cwd": tmp_path, "env": {**os.environ, "HEADWATER_RUNTIME": str(tmp_path / "run")}, "timeout": PATIENCE_S}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **apart)
    report = json.loads(ended.stdout)
    assert (ended.returncode, report["left"]) == (0, 0)
    assert "promise" not in report  # for which it would have been measured and tried, only to end
    assert "stopping as soon as it has started" in ended.stderr


def test_an_interrupt_counts_again_once_all_is_loaded():
    code = "import signal, headwater.cli as cli; cli.main = lambda: print(signal.getsignal(signal.SIGINT).__name__)"
    code += "; from headwater.__main__ import main; main()"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, preexec_fn=_heed_interrupts, capture_output=True, text=True, check=True).stdout
    assert said == "default_int_handler\n"


def _heed_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # they are ignored where the tests run in a shell's background
