"""A runtime folder and a supervisor of its own for each test, and promised flows as processes."""

import os
import signal
import sys
from pathlib import Path

import pytest

from headwater.rate.client import Client, board
from headwater.rate.messages import End

sys.path.insert(0, str(Path(__file__).parent))

from promising import Lane, supervisor_pid


@pytest.fixture
def home(tmp_path):
    """A runtime folder; its supervisor, whoever started it, is gone after the test."""
    yield tmp_path / "run"
    found = board(tmp_path / "run")
    if found is not None:
        client = Client(tmp_path / "run")
        for each in found.lanes:
            client.say(End(each.id))
        client.close()
        os.kill(supervisor_pid(tmp_path / "run"), signal.SIGTERM)


@pytest.fixture
def lane(home):
    lanes = []

    def make(*arguments, at=None):
        lanes.append(Lane(at or home, *arguments))
        return lanes[-1]

    yield make
    for each in lanes:
        each.process.kill()
        each.process.communicate()
