"""A ledger of a site that is played here goes with it: its supervisor, and its folder."""

import os
import signal
import tempfile

import pytest

from headwater import Contract
from headwater.deploy.local import ledgers
from headwater.deploy.local.ledgers import ledger_of, remove_ledger
from headwater.errors import RateError
from headwater.rate import process
from headwater.rate.client import Client
from headwater.rate.messages import Ask
from supervisors import supervisor_pid
from waiting import wait_until


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a ledger with a promise in it, of this process."""
    with tempfile.TemporaryDirectory() as runtime:  # for sockets the names of pytest's folders are too long
        monkeypatch.setenv("HEADWATER_RUNTIME", runtime)
        ledger = ledger_of(tmp_path / "barn")
        client = Client(ledger)
        client.say(Ask("tanks", Contract(100.0), 0.1, best_effort=True))
        client.close()
        yield ledger
        remove_ledger(ledger)


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


def test_a_folder_whose_sockets_would_have_too_long_names_is_told_before_anything_starts(tmp_path):
    home = tmp_path / ("long" * 30)
    home.mkdir()
    with pytest.raises(RateError, match=r"has \d+ bytes, expected at most 87; name a shorter one in HEADWATER_RUNTIME"):
        Client(home).say(Ask("tanks", Contract(100.0), 0.1, best_effort=True))
    assert list(home.iterdir()) == []
