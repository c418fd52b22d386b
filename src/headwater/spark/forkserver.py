"""From one process all others are forked that Spark starts for Python on this machine: it loads once what they all need.

A query starts four of them, one after the other: to make a source, to plan it, to read it, and for tasks. Each would load
pyspark, pyarrow and us for itself, for a second or two. This one does so while Java starts. Java still starts a process
each time, which asks here (`forkclient`) for what it then stands for.
"""

from __future__ import annotations

import atexit
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import rmtree

from headwater.processes import family
from headwater.spark import daemon
from headwater.spark.forkclient import LENGTH, NUMBER, SERVER

_PLANNING = (
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
_process: subprocess.Popen[bytes] | None = None


def start() -> None:
    """Start the fork server of this process, if it has none yet; a Java that is started from now on uses it."""
    global _process
    if is_running():
        return
    folder = Path(tempfile.mkdtemp(prefix="headwater-fork-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(folder / "socket"))
        except OSError:  # a name that is too long for one: each process starts by itself
            return
        os.environ[SERVER] = str(folder / "socket")
        listener.listen()
        none = subprocess.DEVNULL
        _process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            stdin=subprocess.PIPE,  # it ends when this process has
            stdout=none,
            stderr=none,
            env={**os.environ, **_environment()},
            pass_fds=[listener.fileno()],
            process_group=0,  # signals to our group are not for it
            preexec_fn=daemon.leave_signals,
        )
    atexit.register(stop)


def is_running() -> bool:
    """Say whether this process has a fork server at work."""
    return _process is not None and _process.poll() is None


def python_processes(java: int) -> list[int]:
    """Return the Python processes that Spark has started here: those of the fork server, and what stands for them."""
    server = family(_process.pid) if _process is not None and is_running() else []
    return [*family(java)[1:], *server]


def stop() -> None:
    """End the fork server of this process; what was forked goes on."""
    if _process is not None:
        assert _process.stdin is not None
        _process.kill()
        _process.wait()
        _process.stdin.close()


def _environment() -> dict[str, str]:
    """Return what counts when an interpreter starts, as Spark sets it for its processes."""
    return {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "PYTHONUNBUFFERED": "YES"}


def serve(listener: socket.socket) -> None:
    """Fork a process for each that asks, until whoever started this one has ended."""
    daemon.load(*daemon.TASKS, *_PLANNING)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    lifeline = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([lifeline, listener], [], [])
        if lifeline in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _become(connection)
            return
        connection.close()


def _become(connection: socket.socket) -> None:
    """Be the process that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # by which it is ended; below `nohup` it would be ignored
    daemon.pass_over_sigterm()
    head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    with connection.makefile("rb") as incoming:
        words = os.fsdecode(incoming.read(*LENGTH.unpack(head))).split("\0")
    folder, count, arguments = words[0], int(words[1]), words[2:]
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.environ.clear()
    for variable in arguments[count:]:
        name, _, value = variable.partition("=")
        os.environ[name] = value
    os.chdir(folder)
    module = arguments[1]  # behind -m
    sys.argv[1:] = arguments[2:count]
    sys.path[0] = folder
    sys.path[1:1] = [
        place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place not in sys.path
    ]
    connection.sendall(NUMBER.pack(os.getpid()))
    os.register_at_fork(after_in_child=connection.close)  # its end is that of this process, not of all that come of it
    sys.modules.pop(module, None)  # which is run as the main one
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
