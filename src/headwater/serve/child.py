"""A process of a flow, as the server sees it: what it says, what it writes to its log, and how it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headwater.errors import RunError, one_line
from headwater.processes import signal_name
from headwater.serve.messages import Answer, Assignment, Order, Over, Statement, line, statement

log = logging.getLogger(__name__)

COMMAND: tuple[str, ...] = (sys.executable, "-P", "-m", "headwater.cli.lane")
_OURS = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")  #: systemd's words to the server alone
_forking = threading.Lock()
_pids: set[int] = set()  #: of all that were started here and are not reaped
_KEPT_LINES = 200
_LONGEST_LINE = 2000
_LISTEN_S = 5.0  #: how long the last words of a process that is gone are waited for


class Child:
    """A process in a session of its own, with a line to it and its output kept."""

    def __init__(
        self, name: str, task: Assignment, on_message: Callable[[Statement], None], on_hang_up: Callable[[], None]
    ) -> None:
        """Start it; `on_message` is called with what it says, `on_hang_up` when its line is cut, each by another thread."""
        self.name = name
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.hung_up = False  #: its line is cut: it is about to end
        self.last_words: Over | None = None
        ours, theirs = socket.socketpair()
        try:
            with _forking:
                self._process = subprocess.Popen(
                    [*COMMAND, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env={name: value for name, value in os.environ.items() if name not in _OURS},
                )
                _pids.add(self._process.pid)
        except OSError as error:
            ours.close()
            raise RunError(f"no process could be started for flow {name!r}: {error.strerror}") from None
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._socket = ours
        self._send_lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._listen, args=(on_message, on_hang_up), name=f"{name} line", daemon=True),
            threading.Thread(target=self._read_log, name=f"{name} log", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.tell(task)

    def tell(self, message: Assignment | Order) -> None:
        """Send it a message; nothing happens where it has ended."""
        with contextlib.suppress(OSError), self._send_lock:
            self._socket.sendall(line(message))

    def kill(self) -> None:
        """End it at once, and whatever it has started in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def ended(self) -> bool:
        """Whether the process is at its end; it is there until it is reaped."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def reap(self) -> int:
        """Clean up behind a process that is at its end, and return its exit code; below 0 the signal that killed it."""
        self.kill()  # what it left in its session: its own number is not given away before it is reaped
        with _forking:
            code = self._process.wait()
            _pids.discard(self.pid)
        self._threads[0].join(_LISTEN_S)
        self._threads[1].join(_LISTEN_S)
        self._socket.close()
        assert self._process.stdout is not None
        if not self._threads[1].is_alive():
            self._process.stdout.close()
        return code

    def _listen(self, on_message: Callable[[Statement], None], on_hang_up: Callable[[], None]) -> None:
        try:
            with self._socket.makefile("rb") as file:
                for text in file:
                    message = statement(text)
                    if isinstance(message, Over):
                        self.last_words = message
                    on_message(message)
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s: its process cannot be understood: %s", self.name, error)
        self.hung_up = True
        on_hang_up()

    def _read_log(self) -> None:
        assert self._process.stdout is not None
        while text := self._process.stdout.readline(_LONGEST_LINE):
            entry = one_line(text.decode("utf-8", "replace").rstrip("\n"))
            if entry:
                self.lines.append(entry)
                log.warning("%s: %s", self.name, entry)


def reap_strangers() -> None:
    """Reap processes that nobody here has started: they were left to us, the first process of a container."""
    with _forking:
        while True:
            try:
                exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if exited is None or exited.si_pid in _pids:
                return
            os.waitpid(exited.si_pid, 0)


def why_it_died(code: int, lines: Sequence[str]) -> str:
    """Say why a process ended that sent no last message.

    >>> why_it_died(-9, [])
    'killed by SIGKILL'
    >>> why_it_died(3, ["Traceback …", "ValueError: no"])
    'exit code 3; the last it said: ValueError: no'
    """
    how = f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"
    return f"{how}; the last it said: {lines[-1]}" if lines else how


def ask(name: str, task: Assignment, timeout_s: float) -> Answer:
    """Have a process of its own answer a question about a flow; RunError where it does not."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    child = Child(name, task, answers.put, lambda: answers.put(None))
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        child.kill()
        child.reap()
        raise RunError(f"flow {name!r} did not answer within {timeout_s:g} s; does its file end?") from None
    if answer is None or not isinstance(answer, Answer):
        code = child.reap()
        raise RunError(f"the file of flow {name!r} could not be looked at: {why_it_died(code, child.lines)}")
    child.reap()
    return answer
