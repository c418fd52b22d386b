"""The Java process behind a session: started here so that what it says at the start can be explained, not just shown."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from threading import Thread
from typing import Any

from headwater.errors import RunError
from headwater.spark.daemon import leave_signals
from headwater.spark.home import spark_home

#: what nobody needs to know: the module is meant to be used, without a native library MLlib computes in Java, and without an
#: archive of classes that fits it starts as it always did
_NOISE = re.compile(
    r"WARNING: Using incubator modules|Picked up JAVA_TOOL_OPTIONS|netlib-blas:|netlib-lapack:"
    r"|\[[\d.]+s\]\[warning\]\[(cds|aot|class,path)\b"
)
_LOOK_S = 0.02  # between two looks whether Java is there


class JavaSide:
    """A running Java process that speaks with this one."""

    def __init__(self, gateway: Any, lines: deque[str]) -> None:
        self.gateway, self._lines = gateway, lines

    def last_output(self) -> str:
        """Return the last lines it wrote."""
        return "".join(self._lines)

    def ended(self, patience_s: float = 0.0) -> str:
        """Say how the process ended, waiting a little for that if need be; nothing while it runs, or is not ours."""
        process = self.gateway.proc
        if process is None:
            return ""
        try:
            code = int(process.wait(patience_s))
        except subprocess.TimeoutExpired:
            return ""
        return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"

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
_ahead: Start | None = None  #: a Java that was started before anybody needed it


class Start:
    """Java on its way: started, and not yet waited for."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        self.lines: deque[str] = deque(maxlen=200)
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-java-"))
        reading, writing = os.pipe()
        self._listener = Thread(target=_pass_on, args=(reading, self.lines), name="what spark says", daemon=True)
        self._listener.start()
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        others = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self.process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-submit"), *options, *others],
            stdin=subprocess.PIPE,  # Java ends when this process has
            stdout=writing,  # ours may have to hold one JSON document and nothing else
            stderr=writing,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address)},
            preexec_fn=leave_signals,
        )
        os.close(writing)
        atexit.register(self.give_up)

    @property
    def _address(self) -> Path:
        """The file in which Java says where it listens."""
        return self._folder / "address"

    def gateway(self) -> Any:
        """Wait for Java, and return what pyspark speaks with it through."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        while not self._address.is_file():
            if self.process.poll() is not None:
                self._listener.join(5)
                why = " ".join(line.strip() for line in self.lines if not _NOISE.match(line))[:300]
                raise RunError(f"Java ended before Spark had started: {why}; `headwater doctor` says more")
            time.sleep(_LOOK_S)
        with self._address.open("rb") as file:
            os.environ["PYSPARK_GATEWAY_PORT"] = str(read_int(file))
            os.environ["PYSPARK_GATEWAY_SECRET"] = UTF8Deserializer().loads(file)
        try:
            gateway = launch_gateway()  # which finds it there
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self.process
        atexit.unregister(self.give_up)
        rmtree(self._folder, ignore_errors=True)
        return gateway

    def give_up(self) -> None:
        """End it: nobody needs it."""
        atexit.unregister(self.give_up)
        self.process.kill()
        self.process.communicate()
        rmtree(self._folder, ignore_errors=True)


def start_ahead(settings: Mapping[str, str]) -> None:
    """Start Java for a session with these settings, and do not wait for it."""
    global _ahead
    if _running is None and _ahead is None:
        _ahead = Start(settings)


def drop_ahead() -> None:
    """End a Java that was started ahead, if there is one that no session has taken."""
    global _ahead
    if _ahead is not None:
        _ahead.give_up()
        _ahead = None


def launch(settings: Mapping[str, str]) -> JavaSide:
    """Start Java for Spark, once per process: a later session has the same Java."""
    global _running, _ahead
    if _running is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started it
        from pyspark.java_gateway import launch_gateway

        _running = JavaSide(launch_gateway(), deque())
    if _running is None:
        if _ahead is not None and _ahead.settings != settings:
            drop_ahead()
        start, _ahead = _ahead or Start(settings), None
        _running = JavaSide(start.gateway(), start.lines)
    return _running


def java_side() -> JavaSide | None:
    """Return the Java of this process; None where it has none, or was given one."""
    return _running


def java_pid() -> int:
    """Return the number of the Java process, 0 where this process did not start it."""
    process = None if _running is None else _running.gateway.proc
    return 0 if process is None else int(process.pid)


def _pass_on(reading: int, output: deque[str]) -> None:
    """Keep the last lines, and show all but the noise, until the process is gone."""
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            output.append(line)
            if not _NOISE.match(line):
                sys.stderr.write(line)
