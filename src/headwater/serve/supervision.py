"""Looks after the flows of a folder: does what their lifecycles decide, and hears what their processes say."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.errors import FlowError, HeadwaterError, RunError
from headwater.serve.child import Child, ask, reap_strangers, why_it_died
from headwater.serve.folder import FlowFile, Folder
from headwater.serve.home import Home
from headwater.serve.lifecycle import (
    Began,
    Checked,
    Command,
    Ended,
    Event,
    Gone,
    Imported,
    Lifecycle,
    Seen,
    Shut,
    Tick,
)
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
)
from headwater.serve.notify import Notifier
from headwater.serve.served_flow import FlowVersion, ServedFlow
from headwater.serve.settings import Settings, read_settings, settings_beside
from headwater.serve.warm_process import WarmPool
from headwater.web.prometheus import Family

log = logging.getLogger(__name__)

SCAN_S = 1.0  #: how often the folder is looked at
_TURN_S, _LEAVING_S = 0.1, 0.002  #: between two looks at all processes, and while one is about to end
_HUNG_S = 30.0  #: a loop that has not turned for so long hangs
_READY_S = 30.0  #: whoever waits for all flows to have begun waits no longer than this: one may hang
CHECK_S = 60.0
REST_S = 90.0  #: Java is started for it
_CHECKS = 2  #: at a time


class Supervision:
    """Runs the flows of a folder, by one thread; `Service` answers what is asked of them."""

    def __init__(
        self, folder: Folder, home: Home, notifier: Notifier, *, stop_within_s: float, keeps: bool = True
    ) -> None:
        """Of a flow whose file is gone, what was kept stays where it `keeps` that; else somebody removes it."""
        self.folder, self.home = folder, home
        self._keeps = keeps
        self.began_s = time.monotonic()
        self.ended = threading.Event()  #: after `shut`: every flow has stopped
        self.unstopped: list[str] = []  #: flows that did not stop in time
        self._notifier, self._stop_within_s = notifier, stop_within_s
        self._flows: dict[str, ServedFlow] = {}
        self.on_change: Callable[[], None] = lambda: None  #: called, by any thread, when a flow is not what it was
        self.warm_pool = WarmPool(lambda: self.on_change())  #: processes of flows that are to run soon
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._checks = threading.Semaphore(_CHECKS)
        self._scrapes = threading.Lock()
        self._turned_s = time.monotonic()
        self._scanned_s: float | None = None
        self._announced_ready = self._shut = False
        self._thread = threading.Thread(target=self._loop, name="service", daemon=True)

    def start(self) -> None:
        """Start what is in the folder, and look after it from now on."""
        self._thread.start()

    def shut(self, *, now: bool = False) -> None:
        """Stop every flow, in good order or at once; returns before that is done."""
        with self._lock:
            if not self._shut:
                self._notifier.stopping()
            self._shut = True
            for flow in list(self._flows.values()):
                self._handle(flow, Shut(now))
        self.warm_pool.end_all()

    def kill_all(self) -> None:
        """End every process at once, whatever it does; takes no lock."""
        for flow in list(self._flows.values()):
            if flow.child is not None:
                flow.child.kill()

    @property
    def healthy(self) -> bool:
        """Whether the service does its work."""
        return time.monotonic() - self._turned_s < _HUNG_S

    @property
    def ready(self) -> bool:
        """Whether every flow has begun, or could not; not once the service stops."""
        with self._lock:
            if self._shut or self._scanned_s is None:
                return False
            late = time.monotonic() - self._scanned_s > _READY_S
            return late or all(flow.settled or not flow.lifecycle.wanted for flow in self._flows.values())

    @property
    def stopping(self) -> bool:
        """Whether it is shutting down."""
        return self._shut

    def warm(self, name: str, file: Path) -> None:
        """Have a process ready that has made the flow of a file, for when a flow of that name is started."""
        home = str(self.home.of_flow(name).path)
        self.warm_pool.add(name, Assignment("warm", str(file), home, read_settings(settings_beside(file))))

    def rest(self, name: str, file: Path) -> None:
        """Have what Spark has of a flow that stands still kept as the engine does; RunError where that cannot be."""
        home = str(self.home.of_flow(name).path)
        answer = ask(name, Assignment("rest", str(file), home, read_settings(settings_beside(file))), REST_S)
        if answer.why is not None:
            raise RunError(answer.why)

    def wait_stopped(self, name: str, within_s: float) -> bool:
        """Wait until no process runs a flow, or its process has sent its report; say whether that came in time."""

        def is_over() -> bool:
            child = self._flows[name].child if name in self._flows else None
            return child is None or child.last_words is not None

        with self._news:
            return self._news.wait_for(is_over, timeout=within_s)

    def _ask(self, flow: ServedFlow, task: Assignment, timeout_s: float) -> Any:
        with self._checks:
            answer = ask(flow.file.name, task, timeout_s)
        if answer.why is not None:
            raise RunError(answer.why)
        return answer

    # -- the work -----------------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        look_s = 0.0
        while not self.ended.is_set():
            now_s = time.monotonic()
            try:
                if now_s >= look_s and not self._shut:
                    look_s = now_s + SCAN_S
                    self._scan()
                self._turn()
            except Exception:  # a bug of ours: the flows go on, and the next turn may do better
                log.exception("the service broke for a moment")
            self._turned_s = time.monotonic()
            self._notifier.alive()
            self._announce_ready()
            with self._news:
                if self._shut and all(flow.child is None for flow in self._flows.values()):
                    self.ended.set()
                    self._news.notify_all()
                else:
                    self._news.wait(_LEAVING_S if self._is_one_leaving() else _TURN_S)

    def _announce_ready(self) -> None:
        if not self._announced_ready and self.ready:
            self._announced_ready = True
            self._notifier.ready(f"looking after {len(self._flows)} flows of {self.folder.path}")

    def look(self) -> None:
        """Look at the folder now, after whole files were changed in it, instead of at the next scan."""
        if not self._shut:
            self._scan(whole=True)

    def _scan(self, *, whole: bool = False) -> None:
        with self._lock:
            files = self.folder.look(first=whole or self._scanned_s is None)
            if files is None:
                return
            for name, each in files.items():
                flow = self._flows.get(name)
                if flow is None:
                    flow = self._flows[name] = self._new_flow(each)
                if flow.file.print != each.print:
                    flow.graph = None if flow.child is None else flow.graph
                flow.file = each
                self._handle(flow, Seen(each.print))
            for name in set(self._flows) - set(files):
                if self._flows[name].lifecycle.phase != "stopping":
                    self._handle(self._flows[name], Gone())
            self._scanned_s = self._scanned_s or time.monotonic()

    def _new_flow(self, file: FlowFile) -> ServedFlow:
        home = self.home.of_flow(file.name)
        try:
            is_started = read_settings(settings_beside(file.path)).start
        except FlowError:
            is_started = True  # so that it is told
        life = Lifecycle(wanted=is_started and not home.is_stopped, since_s=time.monotonic(), file=file.path.name)
        return ServedFlow(file, home, life)

    def _turn(self) -> None:
        with self._lock:
            flows = list(self._flows.items())
        for name, flow in flows:
            child = flow.child
            if child is not None and child.ended:
                self._reap(flow, child)
            with self._lock:
                self._handle(flow, Tick())
                if flow.lifecycle.phase == "removed":
                    del self._flows[name]
                    stays = f"; what was kept of it stays in {flow.home.path}" if self._keeps else ""
                    log.info("%s: its file is gone%s", name, stays)
        if os.getpid() == 1:  # the first process of a container
            reap_strangers()

    def _reap(self, flow: ServedFlow, child: Child) -> None:
        code = child.reap()  # without the lock: its last words are still being heard
        words = child.last_words
        with self._lock:
            flow.log, flow.child, flow.waits_for = list(child.lines), None, ""
            if words is None:
                end = Ended("died", why_it_died(code, child.lines))
            else:
                end = Ended(words.how, words.why)
                flow.report = bytes(words.report)
            self._handle(flow, end)

    def _handle(self, flow: ServedFlow, event: Event) -> None:
        """Let a lifecycle decide, and do what it says; called with the lock held."""
        life = flow.lifecycle
        before = life.phase, life.why, life.change
        commands = life.handle(event, time.monotonic())
        if (life.phase, life.why, life.change) != before:
            flow.settled = flow.settled or life.phase != "starting"
            flow.news += 1
            self._log_change(flow, before)
            self._news.notify_all()
            self.on_change()
        for command in commands:
            self._do(flow, command)

    def _log_change(self, flow: ServedFlow, before: tuple[Any, ...]) -> None:
        life, name = flow.lifecycle, flow.file.name
        if life.phase == "running" and before[0] != "running":
            log.info("%s: runs (process %s)", name, flow.child.pid if flow.child else "?")
        elif life.phase == "waiting":
            log.error("%s: died: %s; it is started again", name, life.why)
        elif life.phase == "refused":
            log.error("%s: cannot be run: %s", name, life.why)
        elif life.phase == "starting" and life.why:
            log.warning("%s: %s", name, life.why)
        elif life.phase != before[0]:
            log.info("%s: %s%s", name, life.phase, f": {life.why}" if life.why else "")
        if life.change is not None and life.change != before[2]:
            log.error("%s: has changed, but cannot take over: %s; the old one runs on", name, life.change)

    def _do(self, flow: ServedFlow, command: Command) -> None:
        child = flow.child
        if command == "start":
            self._start(flow)
        elif command == "check":
            threading.Thread(target=self._check, args=(flow, flow.file.print), daemon=True).start()
        elif child is not None:
            if command == "kill":
                late = "start" if flow.lifecycle.phase == "starting" else "stop"
                log.error("%s: did not %s in time, and is killed", flow.file.name, late)
                child.kill()
            else:
                if command == "abort":
                    self.unstopped.append(flow.file.name)
                    log.error("%s: does not stop in time, and is told to give up", flow.file.name)
                child.tell(Order("stop" if command == "stop" else "abort"))

    def _place(self, flow: ServedFlow) -> tuple[str, str]:
        return str(flow.file.path), str(flow.home.path)

    def _settings(self, flow: ServedFlow) -> Settings:
        return read_settings(settings_beside(flow.file.path))

    def _start(self, flow: ServedFlow) -> None:
        try:
            task = self._assignment(flow)
            flow.settings = task.settings
            flow.lifecycle.import_within_s = flow.settings.import_within
            flow.lifecycle.stop_within_s = min(flow.settings.stop_within, self._stop_within_s)
            flow.child = self._child(flow, task)
        except HeadwaterError as error:
            self._handle(flow, Ended("refused", str(error)))

    def _assignment(self, flow: ServedFlow) -> Assignment:
        """Return what a process is to run: the file as it is or, where a change of it was refused, as it was before that."""
        print, began = flow.lifecycle.print, flow.running_version
        if began is not None and began.print == print != flow.file.print:
            flow.started_version = began
            return Assignment("run", *self._place(flow), began.settings, text=began.text)
        settings = self._settings(flow)
        try:
            text = flow.file.path.read_bytes()
        except OSError as error:
            raise FlowError(f"cannot read {flow.file.path}: {error.strerror}") from None
        flow.started_version = FlowVersion(print, text, settings)
        return Assignment("run", *self._place(flow), settings)

    def _child(self, flow: ServedFlow, task: Assignment) -> Child:
        """Return a process that runs a flow: the one that waits for that, or a new one."""

        def on_message(message: Statement) -> None:
            self._hear(flow, message)

        name = flow.file.name
        if task.text is not None:
            return Child(name, task, on_message, self._look_now)
        return self.warm_pool.run(name, task, on_message, self._look_now) or Child(
            name, task, on_message, self._look_now
        )

    def _look_now(self) -> None:
        with self._news:
            self._news.notify_all()

    def _is_one_leaving(self) -> bool:
        return any(flow.child is not None and flow.child.hung_up for flow in self._flows.values())

    def _check(self, flow: ServedFlow, print: str) -> None:
        """See whether a changed file could take over; by a thread of its own."""
        why: str | None = None
        try:
            self._ask(flow, Assignment("check", *self._place(flow), self._settings(flow)), CHECK_S)
        except HeadwaterError as error:
            why = str(error)
        with self._lock:
            self._handle(flow, Checked(print, why))

    def _hear(self, flow: ServedFlow, message: Statement) -> None:
        with self._news:
            flow.news += 1
            match message:
                case Running(graph):
                    flow.graph, flow.waits_for = bytes(graph), ""
                    flow.running_version = flow.started_version or flow.running_version
                    self._handle(flow, Began())
                case Waiting(why):
                    flow.waits_for = why
                    log.warning("%s: waits: %s", flow.file.name, why)
                case Importing(over):
                    flow.waits_for = ""
                    self._handle(flow, Imported(over))
                case Measurement(sample):
                    flow.sample = bytes(sample)
                    flow.history.add(time.monotonic(), flow.sample)
                case Reply():
                    flow.reply = message
                case Metrics(families):
                    flow.families = [Family(*each) for each in families]
                case Over():
                    pass  # taken when the process is gone
            self._news.notify_all()
