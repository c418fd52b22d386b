"""Promised flows as processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

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
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
    return found
