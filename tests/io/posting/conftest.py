import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ports import free_port

PATIENCE_S = 60


class Taking:
    """A server process that can be killed and started again."""

    def __init__(self, folder, *options):
        self.base, self.port, self._options = folder / "taken.db", free_port(), options
        self.url = f"http://127.0.0.1:{self.port}/in"
        self._process = None

    def start(self):
        program = Path(__file__).with_name("taking.py")
        self._process = subprocess.Popen([sys.executable, program, str(self.port), self.base, *self._options])
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.02)
        raise AssertionError("the server does not start")

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def taken(self):
        """Return the values of `n` that it has, in the order they came."""
        if not self.base.exists():
            return []
        with sqlite3.connect(self.base, timeout=10) as base:
            try:
                return [n for (n,) in base.execute("SELECT n FROM records ORDER BY rowid")]
            except sqlite3.OperationalError:  # it has made no table yet
                return []


@pytest.fixture
def taking(tmp_path):
    started = []

    def start(*options):
        started.append(Taking(tmp_path, *options).start())
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def port():
    return free_port()
