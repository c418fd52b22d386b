"""Runs in the process of a flow: the flow, a thread that obeys the server, and a sample that is sent to it each second.

A server that is gone is a reason to stop, in good order and in time: nobody would look after the flow any more.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headwater.engine.peek import peek
from headwater.errors import HeadwaterError, RunError, is_described_wrongly
from headwater.flow.flow import Flow
from headwater.io.lock import FILE, Lock
from headwater.metrics import Sample
from headwater.serve.lifecycle import ABORT_S
from headwater.serve.messages import (
    Assignment,
    Importing,
    Measurement,
    Metrics,
    Order,
    Over,
    Reply,
    Running,
    Statement,
    Waiting,
    Warm,
    encodable,
    instruction,
    line,
    raw,
)
from headwater.serve.priority import no_longer_than, restore_priority
from headwater.serve.usage import Usage
from headwater.web.prometheus import families_of

SAMPLE_S = 1.0  #: how often the server hears how the flow fares
PEEK_S = 3.0  #: how long records are waited for that somebody wants to see
_LOOK_S = 0.1
T = TypeVar("T")


class Line:
    """The connection to the server; any thread may send."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        os.set_inheritable(fd, False)
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def say(self, message: Statement) -> None:
        """Send a message; nothing happens where the server is gone."""
        try:
            with self._lock:
                self._socket.sendall(line(message))
        except OSError:
            pass

    def hear(self) -> Assignment | Order | None:
        """Wait for the next message of the server; None when it is gone."""
        try:
            text = self._file.readline()
        except OSError:
            return None
        return instruction(text) if text else None

    def is_cut(self, within_s: float) -> bool:
        """Wait for the server to be gone, for so long at most; messages that it has sent stay to be read."""
        poller = select.poll()
        poller.register(self._socket, select.POLLRDHUP)
        return bool(poller.poll(within_s * 1000))


@contextmanager
def end_with_server(to_server: Line) -> Iterator[None]:
    """End this process as soon as the server is gone, whatever it is doing, while the context lasts.

    The import of a flow is the user's own code, and may take for ever. No thread is left behind: lanes may be forked.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if to_server.is_cut(_LOOK_S):
                os._exit(1)

    watcher = threading.Thread(target=watch, name="watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def prepare(to_server: Line, make: Callable[[], T]) -> tuple[T, Assignment] | None:
    """Make what a flow needs to run, and wait for the task to do so; None if that never comes, or it cannot be made."""
    try:
        with end_with_server(to_server), no_longer_than():
            product = make()
    except HeadwaterError as error:
        to_server.say(Warm(encodable(str(error))))
        return None
    if not restore_priority():
        to_server.say(Warm("its priority could not be restored"))
        return None
    to_server.say(Warm())
    task = to_server.hear()
    return (product, task) if isinstance(task, Assignment) else None


class Lane:
    """A flow in this process, from when it is made to its final report."""

    def __init__(self, to_server: Line, task: Assignment) -> None:
        self._line, self._task = to_server, task
        self._run: Any = None  #: as `headwater.run.Run`, with its flow
        self._home: Lock | None = None  #: on what is kept of the flow
        self._stop_requested = False  #: by the server
        self._signalled = False

    def live(
        self,
        make: Callable[[Assignment], Flow],
        begin: Callable[[Assignment, Flow], Any],
        look: Callable[[], None] = lambda: None,
    ) -> int:
        """Run the flow that is made, and then begun, until its end, and return the exit code of the process.

        `look` is called again and again meanwhile.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the server, which decides
        signal.signal(signal.SIGTERM, lambda signum, frame: self._stop_by_signal())
        listener = threading.Thread(target=self._obey, name="obey", daemon=True)
        forks = "lanes" in self._task.settings.options  # which is not safe beside other threads
        if not forks:
            listener.start()
        try:
            with end_with_server(self._line) if forks else nullcontext():
                self._take_home()
                self._line.say(Importing())
                definition = make(self._task)
                self._line.say(Importing(over=True))
            self._run = begin(self._task, definition)
            if forks:
                listener.start()
            flow: Flow = self._run.flow
            self._line.say(Running(raw(graph_of(flow))))
            if self._stop_requested or self._signalled:
                self._run.stop()
            report = self._follow(look)
        except HeadwaterError as error:
            return self._report_failure(error)
        was_stopped = self._stop_requested or self._signalled
        why = "a SIGTERM stopped it" if self._signalled else ""
        assert self._home is not None
        self._home.release()  # all is closed: who goes on from it need not wait until this process has gone
        self._line.say(Over("stopped" if was_stopped else "end", why, raw(report.to_json())))
        return 0

    def _report_failure(self, error: HeadwaterError) -> int:
        report = getattr(error, "report", None)
        is_refusal = is_described_wrongly(error) and self._run is None
        document = raw(None if report is None else report.to_json())
        self._line.say(Over("refused" if is_refusal else "died", encodable(str(error)), document))
        return 2 if is_refusal else 1

    def _take_home(self) -> None:
        """Wait until the process of a server before this one has left what is kept of the flow; not for ever."""
        folder = Path(self._task.home)
        until_s = time.monotonic() + self._task.settings.stop_within + ABORT_S
        announced = False
        while True:
            try:
                self._home = Lock(folder, "what is kept of the flow,")
                return
            except RunError as error:
                if not (folder / FILE).exists():
                    raise
                if not announced:
                    announced = True
                    self._line.say(Waiting(encodable(str(error))))
                if time.monotonic() > until_s:
                    kill_lane(folder)
                    until_s += ABORT_S
            time.sleep(_LOOK_S)

    def _follow(self, look: Callable[[], None]) -> Any:
        follower = RunFollower(self._run)
        while (report := self._run.wait(SAMPLE_S)) is None:
            self._line.say(Measurement(raw(follower.document(self._run.sample()))))
            look()
        self._line.say(Measurement(raw(follower.document(report.last))))
        return report

    # -- what it is told --------------------------------------------------------------------------------------------------

    def _obey(self) -> None:
        while (order := self._line.hear()) is not None:
            assert isinstance(order, Order)
            if order.what == "metrics":
                self._send_metrics()
            elif order.what in ("records", "promise"):
                threading.Thread(target=self._show, args=(order,), daemon=True).start()
            else:
                self._stop_requested = True
                self._stop(order.what)
        self._stop_requested = True
        self._leave_alone()

    def _stop(self, what: str) -> None:
        if self._run is None:
            if what == "abort":
                os._exit(1)
            return  # it is stopped once it is there; what takes too long to make is aborted
        self._run.stop() if what == "stop" else self._run.abort()

    def _send_metrics(self) -> None:
        families = families_of(self._run) if self._run is not None else []
        self._line.say(Metrics([(each.name, each.kind, each.about, each.values) for each in families]))

    def _show(self, order: Order) -> None:
        """Show records as they pass a step, or how a promise fares; by a thread of its own, since it takes a while."""
        try:
            if self._run is None:
                raise RunError("the flow has not begun yet")
            content = peek(self._run, order.step, order.limit, PEEK_S) if order.what == "records" else self._promise()
            self._line.say(Reply(raw(content)))
        except HeadwaterError as error:
            self._line.say(Reply(raw(None), encodable(str(error))))

    def _promise(self) -> dict[str, Any]:
        if not hasattr(self._run, "promise"):
            raise RunError(
                "the flow was promised nothing; a contract or `promise` in its settings would, see docs/rates.md"
            )
        promise: dict[str, Any] = self._run.promise()
        return promise

    def _stop_by_signal(self) -> None:
        self._signalled = True
        threading.Thread(target=self._stop, args=("stop",), daemon=True).start()  # a lock may be held here

    def _leave_alone(self) -> None:
        """Stop because the server is gone: in good order, then at once, then whatever it is doing."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):  # nobody reads what is said here any more
            os.dup2(nowhere, fd)
        if self._run is None:
            os._exit(1)
        self._run.stop()
        time.sleep(self._task.settings.stop_within)
        self._run.abort()
        time.sleep(ABORT_S)
        os._exit(1)


class RunFollower:
    """Describes a run, sample by sample."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._before: Sample | None = None
        self._usage = Usage()

    def document(self, now: Sample) -> dict[str, Any]:
        """Describe a sample: all counts in `total`, those since the sample before in `last`, and what the process uses."""
        last = now if self._before is None else now.since(self._before)
        self._before = now
        checkpointer = getattr(self._run, "checkpointer", None)
        return {
            "at": round(time.time(), 3),
            "total": now.to_json(),
            "last": last.to_json(),
            "process": self._usage.read(time.monotonic()) | {"lanes": getattr(self._run, "lanes", 1)},
            "checkpoints": None if checkpointer is None else checkpointer.to_json(),
        }


def graph_of(flow: Flow) -> dict[str, Any]:
    """Describe a flow as a drawing: steps in columns from left to right, and the streams between them."""
    document = flow.to_json()
    column: dict[str, int] = {}
    for step in flow.in_order():
        column[step.name] = max((column.get(edge.step, 0) + 1 for edge in step.inputs), default=0)
    steps = [
        {
            **{key: value for key, value in step.items() if key != "inputs"},
            "role": "source" if flow.steps[step["name"]].is_source else ("sink" if not step["outputs"] else "step"),
            "column": column[step["name"]],
            "line": flow.steps[step["name"]].where,
        }
        for step in document["steps"]
    ]
    streams = [
        {"from": edge["step"], "port": edge["port"], "to": step["name"]}
        | {key: edge[key] for key in ("grouping", "keys")}
        for step in document["steps"]
        for edge in step["inputs"]
    ]
    return {**{key: value for key, value in document.items() if key != "steps"}, "steps": steps, "streams": streams}


def kill_lane(folder: Path) -> None:
    """End the process of a flow that has what is kept of it, and does not leave; no other process, whatever its number."""
    try:
        pid = int(msgspec.json.decode((folder / FILE).read_bytes())["pid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError, KeyError, TypeError):
        return
    if b"headwater.cli.lane" in words and pid != os.getpid():
        os.kill(pid, signal.SIGKILL)
