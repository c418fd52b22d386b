"""The end of processes that an experiment has started, with all that they have started themselves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress


def end(processes: Sequence[subprocess.Popen[bytes]], within_s: float = 45.0) -> None:
    """Ask all of them to end, wait, and kill whoever has not, with its session: each must have been started with its own."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
