"""A server as a user starts it: a process of its own, asked over HTTP."""

from pathlib import Path

import pytest

from serving import Serving


@pytest.fixture
def serving(tmp_path):
    made = Serving(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def alive():
    """Say whether a process is there, and more than its remains."""

    def is_alive(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    return is_alive
