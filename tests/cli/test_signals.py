"""Signals that come while a run is still being started."""

import os
import signal

import pytest

from headwater import Flow, engine, io
from headwater.cli.signals import stopped_by_signals
from headwater.engine.lanes.child import other_threads


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_run_is_there_drains_it_as_soon_as_it_is(number, capfd):
    flow, seen = Flow("endless"), io.Collect()
    flow.read("r", io.Generate(lambda n: {"n": n}, {"n": int}, rate=1000)).write("w", seen)
    with stopped_by_signals() as started:
        os.kill(os.getpid(), number)
        run = engine.start(flow)
        started(run)
        report = run.wait(60)
    assert report is not None
    assert report.left == 0
    assert report.last.records_in == len(seen.records)
    assert "once more to leave now" in capfd.readouterr().err


def test_a_signal_before_lanes_are_there_starts_no_thread_beside_which_they_could_not_be_forked(capfd):
    with stopped_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert other_threads() == []
    assert "stopping as soon as it has started" in capfd.readouterr().err


def test_a_second_signal_does_not_wait_for_the_start():
    with stopped_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
