"""A runtime folder and a supervisor of its own for each test, and promised flows as processes."""

import sys
from pathlib import Path

import pytest

from supervisors import end_supervisor

sys.path.insert(0, str(Path(__file__).parent))

from promising import Lane


@pytest.fixture
def home(tmp_path):
    """A runtime folder; its supervisor and its warm parents, whoever started them, are gone after the test."""
    yield tmp_path / "run"
    for each in (tmp_path / "run").glob("lanes-*.sock"):
        each.unlink()  # which its warm parent goes home by
    end_supervisor(tmp_path / "run")


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
