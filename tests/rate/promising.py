"""Promised flows as processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

from waiting import wait_until

PROMISED = Path(__file__).parent / "promised.py"


class Lane:
    """A promised flow in a process."""

    def __init__(self, home, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, str(PROMISED), *map(str, arguments)],
            env={**os.environ, "HEADWATER_RUNTIME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def started(self):
        said = self.process.stdout.readline()
        assert said == "started\n", said + self.process.stderr.read()
        return self

    def report(self):
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, err
        return json.loads(out.splitlines()[-1])


def until(what, seconds=120):
    """Wait until something is true, and return it."""
    return wait_until(what, seconds=seconds, pause_s=0.05)
