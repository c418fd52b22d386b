"""Stands for a Python process that Java starts: has the fork server make it, and lives as long as it does.

It is run by its path, in a bare interpreter: it needs nothing but a few of Python's own modules, which is why it starts in a
fiftieth of the time. Where no server answers, it becomes the process itself.
"""

import _thread
import os
import signal
import socket
import struct
import sys

SERVER = "HEADWATER_FORK_SERVER"  #: where the server listens, in the environment
LENGTH, NUMBER = struct.Struct("=Q"), struct.Struct("=q")  #: of what is asked for, and of the process that was made


def main() -> None:
    """Be the process that was asked for, or stand for it: what ends one of them ends the other."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # it waits until it can be passed on
    answer = _ask(sys.argv[1:])
    if answer is None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    server, process = answer
    _thread.start_new_thread(_pass_on, (os.getppid(), process))
    for standard in range(3):
        os.close(standard)  # Java sees their end when the process itself has closed them
    server.recv(1)


def _pass_on(java: int, process: int) -> None:
    """End the process when Java says so; who sends a signal to a whole group of processes means the run, which ends Java."""
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != java:
        pass
    os.kill(process, signal.SIGHUP)  # a daemon passes over that too, and ends since Java has closed its input


def _ask(arguments: list[str]) -> tuple[socket.socket, int] | None:
    """Ask for a process with the environment and the streams of this one; return its number, and what closes at its end."""
    server = socket.socket(socket.AF_UNIX)
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    message = os.fsencode("\0".join([os.getcwd(), str(len(arguments)), *arguments, *variables]))
    try:
        server.connect(os.environ[SERVER])
        socket.send_fds(server, [LENGTH.pack(len(message))], [0, 1, 2])
        server.sendall(message)
        return server, NUMBER.unpack(server.recv(NUMBER.size, socket.MSG_WAITALL))[0]
    except (OSError, struct.error):  # it has gone, maybe while it was asked
        return None


if __name__ == "__main__":
    main()
