"""A lane in a process of its own: forked from the one that was asked to run the flow, and told by it what to do."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, cast

from headwater import errors
from headwater.data.jit import service
from headwater.engine.after_fork import let_go_of_signals
from headwater.engine.lanes.lane import LaneRun
from headwater.engine.lanes.wire import pack, report_to_wire, sample_to_wire, unpack
from headwater.engine.memory import keep_freed, share_arenas
from headwater.errors import HeadwaterError, RunError
from headwater.processes import ending

if TYPE_CHECKING:
    from headwater.engine.lanes.checkpoint import Word

log = logging.getLogger(__name__)

_COMPILE_S = 60.0  #: how long to wait for kernels that are being compiled before lanes go on without them
_TELL_S = 1.0  #: of that wait, after which it is told
SAMPLE, STOP, ABORT = b"sample", b"stop", b"abort"  #: what a lane may be told


class DiedError(RunError):
    """A lane ended before it had started: somebody killed it, or it broke."""


class Child:
    """The lane as the process that runs lane 0 sees it: what it was last heard to say, and whether it lives."""

    def __init__(self, lane: int, pid: int, connection: Connection, wait_for: Callable[[int], int]) -> None:
        """`wait_for` waits for the end of a process, and returns its exit status."""
        self.lane, self.pid, self.connection, self._wait_for = lane, pid, connection, wait_for
        self.ended = False  #: it has said its last word, or is gone
        self._telling = threading.Lock()

    def check_started(self) -> None:
        """Wait until it has started; raise what it has to say against it."""
        try:
            answer = unpack(self.connection.recv_bytes())
        except (EOFError, ConnectionError):
            self.ended, status = True, self.reap()
            raise DiedError(f"{self} {ending(status)} before it had started") from None
        if "refused" in answer:
            name, text = answer["refused"]
            kind = getattr(errors, name, RunError)
            raise kind(text)

    def tell(self, what: bytes) -> None:
        """Tell it something; one that is gone hears nothing."""
        with suppress(OSError), self._telling:
            self.connection.send_bytes(what)

    def reap(self) -> int:
        """Wait for the process, which is at its end, and return its exit status: below 0 the signal that killed it."""
        with self._telling:  # lest somebody tell it to whatever gets its descriptor next
            self.connection.close()
        return self._wait_for(self.pid)

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def __str__(self) -> str:
        return f"lane {self.lane} (process {self.pid})"


def wait_for_compiler() -> None:
    """Wait until what is being compiled is there, for some time: all lanes share that."""
    began = time.monotonic()
    has_told = False
    while (count := service.waiting()) and (waited := time.monotonic() - began) < _COMPILE_S:
        if not has_told and waited > _TELL_S:
            has_told = True
            log.warning("lanes begin once kernels are compiled, once on this machine: %d of them", count)
        time.sleep(0.01)


def check_that_it_can_fork() -> None:
    """Wait for the compiler, and refuse to fork beside threads: what they hold at that moment stays held for ever."""
    wait_for_compiler()
    others = other_threads()
    if others:
        raise RunError(
            f"lanes are forked, which is not safe beside other threads, and this process has {len(others)}: "
            f"{', '.join(others[:5])}; start the run before them, or without lanes"
        )


def other_threads() -> list[str]:
    """Return the names of threads beside which no lane can be forked."""
    own = (threading.current_thread(), *filter(service.is_compiling, threading.enumerate()))
    return [thread.name for thread in threading.enumerate() if thread not in own]


def forked(lane: int, make: Callable[[], LaneRun], others: list[Child]) -> Child:
    """Fork a lane from this process; `others` are those forked before, whose connections the new one does not keep."""
    ours, theirs = Pipe()
    pid = os.fork()
    if not pid:
        for connection in (*(other.connection for other in others), ours):
            connection.close()
        live(theirs, make)
    theirs.close()
    return Child(lane, pid, ours, _waited_for)


def _waited_for(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def live(connection: Connection, make: Callable[[], LaneRun]) -> None:
    """Run a lane from fork to exit; never returns to what the forked process was doing."""
    status = 1
    try:
        let_go_of_signals()
        share_arenas()
        keep_freed()
        _run(connection, make)
        status = 0
    except BaseException:
        log.exception("lane broke")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run(connection: Connection, make: Callable[[], LaneRun]) -> None:
    telling = threading.Lock()

    def tell(message: object) -> None:
        try:
            with telling:
                connection.send_bytes(pack(message))
        except OSError:  # without anybody to tell, a lane ends
            os._exit(1)

    try:
        run = make()
        if run.checkpointer is not None:
            run.checkpointer.say = tell
        run.start()
    except HeadwaterError as error:
        tell({"refused": [type(error).__name__, str(error)]})
        return
    tell({"started": os.getpid()})
    threading.Thread(target=_obey, args=(connection, run, tell), name="obey", daemon=True).start()
    failed: RunError | None = None
    try:
        report = run.wait()
    except RunError as error:
        failed, report = error, error.report
    assert report is not None
    tell({"report": report_to_wire(report, failed), "kept": run.backlog()})


def _obey(connection: Connection, run: LaneRun, tell: Callable[[object], None]) -> None:
    """Do what is told; without anybody to tell it, a lane ends."""
    try:
        while True:
            what = connection.recv_bytes()
            if what == STOP:
                run.stop()
            elif what == ABORT:
                run.abort()
            elif what == SAMPLE:
                tell({"sample": sample_to_wire(run.sample()), "kept": run.backlog()})
            elif run.checkpointer is not None:
                word, number = what.decode().split()
                run.checkpointer.tell(cast("Word", word), int(number))
    except (EOFError, OSError):
        os._exit(1)
