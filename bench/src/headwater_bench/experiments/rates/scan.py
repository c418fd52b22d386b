"""Who competes: SCAN, one step of heavy arithmetic, and neighbours that mean harm. Each in processes of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.cores import usable_cores

_SCAN = "import math\nx = 0.5\nwhile True:\n    for i in range(10000): x = math.sin(x + i) * math.exp(-x * x)"
#: one call into C that does not give the interpreter's lock back
_HOLDER = "import re\ntext = 'a' * 27\nwhile True: re.match('(a?){27}a{27}b', text)"
_FORKS = "import os\nfor i in range(49):\n    if os.fork() == 0: break\nwhile True:\n    for i in range(10000): pass"
#: processes of a few milliseconds, one after the other, as a shell, a build or a run of tests has them
SHORT = "import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-S', '-c', 'pass'])"
NEIGHBOURS = {"python": _SCAN, "lock": _HOLDER, "forks": _FORKS}


@contextmanager
def scan(percent: float) -> Iterator[None]:
    """Let SCAN want so many percent of the whole machine, 100 being all cores busy."""
    with running(_SCAN, round(percent / 100 * usable_cores())):
        yield


@contextmanager
def running(code: str, processes: int) -> Iterator[None]:
    """Run code in so many processes; all that they have started is gone afterwards."""
    # in sessions of their own, as programs of others are: a scheduler that groups by session takes one for one competitor
    command = [sys.executable, "-S", "-c", code]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            os.killpg(each.pid, signal.SIGKILL)
        for each in started:
            each.wait()
