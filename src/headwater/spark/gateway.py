"""The Java process behind a session: started here so that what it says at the start can be explained, not just shown."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from signal import Signals
from subprocess import TimeoutExpired
from threading import Thread
from typing import Any

from headwater.errors import RunError

#: what nobody needs to know: the module is meant to be used, without a native library MLlib computes in Java, and without an
#: archive of classes that fits it starts as it always did
_NOISE = re.compile(
    r"WARNING: Using incubator modules|Picked up JAVA_TOOL_OPTIONS|netlib-blas:|netlib-lapack:"
    r"|\[[\d.]+s\]\[warning\]\[(cds|aot|class,path)\b"
)


class JavaSide:
    """A running Java process that speaks with this one."""

    def __init__(self, gateway: Any, said: deque[str]) -> None:
        self.gateway, self._said = gateway, said

    def said(self) -> str:
        """Return the last lines it wrote."""
        return "".join(self._said)

    def ended(self, patience_s: float = 0.0) -> str:
        """Say how the process ended, waiting a little for that if need be; nothing while it runs, or is not ours."""
        process = self.gateway.proc
        if process is None:
            return ""
        try:
            code = int(process.wait(patience_s))
        except TimeoutExpired:
            return ""
        return f"it was ended by {Signals(-code).name}" if code < 0 else f"it ended with code {code}"

    def end(self, patience_s: float) -> None:
        """Let the process end as it does when nobody is there any more to speak with, and wait for that."""
        process = self.gateway.proc
        if process is not None:
            process.stdin.close()
            process.wait(patience_s)

    def kill(self) -> None:
        """End the process at once, if it is ours: whoever waits for an answer of it then waits no longer."""
        if self.gateway.proc is not None:
            self.gateway.proc.kill()


_running: JavaSide | None = None  # Spark allows one per process


def launch(conf: Any) -> JavaSide:
    """Start Java for Spark, once per process: a later session has the same Java."""
    global _running
    if _running is None:
        _running = _launched(conf)
    return _running


def java_side() -> JavaSide | None:
    """Return the Java of this process; None where it has none, or was given one."""
    return _running


def java_pid() -> int:
    """Return the number of the Java process, 0 where this process did not start it."""
    process = None if _running is None else _running.gateway.proc
    return 0 if process is None else int(process.pid)


def _launched(conf: Any) -> JavaSide:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    said: deque[str] = deque(maxlen=200)
    reading, writing = os.pipe()
    listener = Thread(target=_pass_on, args=(reading, said), name="what spark says", daemon=True)
    listener.start()
    try:
        # its standard output too: ours may have to hold one JSON document and nothing else
        return JavaSide(launch_gateway(conf, {"stdout": writing, "stderr": writing}), said)
    except PySparkRuntimeError as error:
        os.close(writing)
        writing = -1
        listener.join(5)
        why = " ".join(line.strip() for line in said if not _NOISE.match(line))[:300]
        raise RunError(f"Java ended before Spark had started: {why}; `headwater doctor` says more") from error
    finally:
        if writing >= 0:
            os.close(writing)


def _pass_on(reading: int, said: deque[str]) -> None:
    """Keep the last lines, and show all but the noise, until the process is gone."""
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            said.append(line)
            if not _NOISE.match(line):
                sys.stderr.write(line)
