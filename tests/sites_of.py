"""Sites and coordinators as a user starts them: processes of the command line, ended when the test is over."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from headwater.deploy.coordinator.state import StateFolder
from ports import free_port

#: records that do not come to their end before a file is there: nothing that a test does comes too late
_SLOW = """
import time
from pathlib import Path

from headwater import Flow, Tumbling, agg, col, io
from headwater.data.batch import NO_WATERMARK, Batch

ROWS = [{{"n": n, "tank": f"t{{n % 5}}", "at": n * 10_000}} for n in range(30_000)]


class Slow(io.Items):
    def open(self, reject, position=None):
        reader = super().open(reject, position)
        read = reader.read

        def slowly(limit, timeout_s):
            if Path("{folder}/hurry").exists():
                return read(limit, timeout_s)
            time.sleep(0.02)
            return Batch.of_watermark(NO_WATERMARK) if reader.position > 20_000 else read({rate_hz} // 50, timeout_s)

        reader.read = slowly
        return reader
"""


def slow_flow(folder, rate_hz, text):
    """Return a program: `ROWS` and a source `Slow` of them, at a rate until `folder` has a file `hurry`; then a text."""
    return _SLOW.format(folder=folder, rate_hz=rate_hz) + text.format(folder=folder)


WAIT_S = 180.0  #: for what comes in a few seconds where nothing else is at work


class Commands:
    """Starts commands in a folder; `close` ends what still runs, with all that it has started.

    The coordinator's address is settled before any of them: one that comes to be the first would take the usual port, at
    which that of another test may listen.
    """

    def __init__(self, folder):
        self.folder, self.started = folder, []
        state = StateFolder(folder / ".headwater" / "deploy")
        state.identity()
        state.settled_address("127.0.0.1", free_port())

    def start(self, *words):
        log: Path = self.folder / f"{len(self.started)}-{words[0]}.log"
        with open(log, "w") as to:
            process = subprocess.Popen(
                [sys.executable, "-m", "headwater", *map(str, words)],
                cwd=self.folder, stdout=to, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        process.log = log  # type: ignore[attr-defined]
        self.started.append(process)
        return process

    def run(self, *words, code=0):
        process = self.start(*words)
        process.wait(2 * WAIT_S)
        said = process.log.read_text()
        assert process.returncode == code, said
        return said

    def json(self, *words):
        done = subprocess.run(
            [sys.executable, "-m", "headwater", *map(str, words), "--json"],
            cwd=self.folder, capture_output=True, text=True, timeout=2 * WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def logs(self):
        return "\n".join(f"== {process.log.name}\n{process.log.read_text()}" for process in self.started)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(met, commands, what):
    """Wait for a condition; what all commands have said is shown where it does not come."""
    until = time.monotonic() + WAIT_S
    while not (found := met()):
        assert time.monotonic() < until, f"{what} did not come:\n{commands.logs()}"
        time.sleep(0.05)
    return found
