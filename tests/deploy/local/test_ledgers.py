"""A ledger of a site that is played here goes with it: its supervisor, and its folder."""

import os
import signal

import pytest

from headwater import Contract
from headwater.deploy.local import ledgers
from headwater.deploy.local.ledgers import ledger_of, remove_ledger
from headwater.rate import process
from headwater.rate.client import Client
from headwater.rate.messages import Ask
from supervisors import supervisor_pid
from waiting import wait_until


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a ledger with a promise in it, of this process."""
    monkeypatch.setenv("HEADWATER_RUNTIME", str(tmp_path / "run"))
    found = ledger_of(tmp_path / "barn")
    client = Client(found)
    client.say(Ask("tanks", Contract(100.0), 0.1, best_effort=True))
    client.close()
    yield found
    remove_ledger(found)


def test_it_is_removed_with_the_supervisor_that_keeps_it_and_those_of_others_stay(home, tmp_path):
    other = ledger_of(tmp_path / "cloud")
    other.mkdir()
    pid = supervisor_pid(home)
    assert (home / "ledger.json").exists()
    remove_ledger(home)
    assert not home.exists()
    assert process.began(pid) is None
    assert other.is_dir()
    remove_ledger(home)  # nothing is there to remove


def test_one_whose_supervisor_does_not_end_stays_and_is_told(home, monkeypatch, caplog):
    monkeypatch.setattr(ledgers, "_END_S", 0.1)
    pid = supervisor_pid(home)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: process.is_stopped(pid), "a supervisor that is stopped")
        remove_ledger(home)
        assert home.is_dir()
        assert f"a ledger of promises stays: the supervisor in {home} (process {pid}) has not ended" in caplog.text
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: process.began(pid) is None, "its end")
