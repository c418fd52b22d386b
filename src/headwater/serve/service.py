"""Answers questions about the flows of a folder, and carries out what is asked: start, stop, replay, add a query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from headwater import __version__
from headwater.errors import RunError, suggestion
from headwater.serve import families
from headwater.serve.added_queries import add_to, check_name
from headwater.serve.home import FlowHome
from headwater.serve.lifecycle import ABORT_S, Restart, Want
from headwater.serve.messages import Assignment, Order
from headwater.serve.query import stream_name
from headwater.serve.served_flow import ServedFlow
from headwater.serve.settings import AddedQuery, settings_beside
from headwater.serve.subscription import Subscription
from headwater.serve.supervision import CHECK_S, Supervision
from headwater.web.prometheus import exposition

REPLAY_S, SCRAPE_S, SHOW_S = 300.0, 2.0, 10.0


class UnknownFlowError(RunError):
    """There is no flow of a name."""


class Service(Supervision):
    """Answers for the flows that it looks after, whatever thread asks."""

    # -- what is known ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all flows."""
        with self._lock:
            return sorted(self._flows)

    def describe(self) -> dict[str, Any]:
        """Say what this server is, and where."""
        return {
            "version": __version__,
            "folder": str(self.folder.path),
            "state": str(self.home.path),
            "healthy": self.healthy,
            "ready": self.ready,
            "stopping": self.stopping,
            "flows": len(self.names()),
        }

    def status(self, name: str) -> dict[str, Any]:
        """Describe how a flow fares."""
        with self._flow(name) as flow:
            return flow.status(time.monotonic())

    def statuses(self) -> list[dict[str, Any]]:
        """Describe how all flows fare."""
        with self._lock:
            now_s = time.monotonic()
            return [self._flows[name].status(now_s) for name in sorted(self._flows)]

    def log_of(self, name: str) -> list[str]:
        """Return the last lines that a flow's process has written."""
        with self._flow(name) as flow:
            return flow.log if flow.child is None else list(flow.child.lines)

    def sample_of(self, name: str) -> bytes | None:
        """Return a flow's last sample as JSON; None before the first."""
        with self._flow(name) as flow:
            return flow.sample

    def history_of(self, name: str, seconds: float) -> list[bytes]:
        """Return samples of the last so many seconds as JSON, oldest first."""
        with self._flow(name) as flow:
            return list(flow.history.since(time.monotonic() - seconds))

    def home_of(self, name: str) -> FlowHome:
        """Return what is kept of a flow."""
        with self._flow(name) as flow:
            return flow.home

    def graph_of(self, name: str) -> bytes:
        """Return the drawing of a flow as JSON; of one that has not run yet, its file is looked at."""
        with self._flow(name) as flow:
            if flow.graph is not None:
                return flow.graph
        answer = self._ask(flow, Assignment("check", *self._place(flow), self._settings(flow)), CHECK_S)
        return bytes(answer.result)

    def follow(self, name: str | None, patience_s: float) -> Iterator[tuple[str, bytes] | None]:
        """Return (what, JSON) of a flow, or the states of all, as they come; None after a while without any."""
        subscription = Subscription(name)
        until_s = time.monotonic() + patience_s
        while True:
            with self._news:
                if name is not None and name not in self._flows:
                    return
                events: list[tuple[str, bytes] | None] = [*subscription.news(self._flows, time.monotonic())]
                if not events:
                    if self._shut and self.ended.is_set():
                        return
                    self._news.wait(min(1.0, patience_s))
                    if time.monotonic() > until_s:
                        events.append(None)
            if events:
                until_s = time.monotonic() + patience_s
            yield from events

    def metrics(self) -> str:
        """Ask all flows how they fare, and write it for Prometheus; one that does not answer in time is left out."""
        with self._scrapes:
            with self._lock:
                running = [flow for flow in self._flows.values() if flow.lifecycle.phase == "running"]
                for flow in running:
                    flow.families = None
                children = [(flow.child, flow) for flow in running if flow.child is not None]
            for child, _ in children:
                child.tell(Order("metrics"))
            with self._news:
                self._news.wait_for(lambda: all(s.families is not None for _, s in children), SCRAPE_S)
                exported = [
                    families.label_flow(flow.file.name, each) for _, flow in children for each in flow.families or []
                ]
                exported += families.of_flows(self._flows)
        return exposition(exported)

    # -- what can be asked for --------------------------------------------------------------------------------------------

    def act(self, name: str, what: str) -> dict[str, Any]:
        """Start, stop or restart a flow, and describe it; what is stopped stays so when the server is started again."""
        with self._flow(name) as flow:
            if self._shut:
                raise RunError("the server is stopping; nothing is started or stopped any more")
            if flow.replaying.locked():
                raise RunError(f"dead letters of flow {name!r} are being replayed; try again when that is done")
            flow.home.note_stopped(what == "stop")
            self._handle(flow, Restart() if what == "restart" else Want(what == "start"))
            return flow.status(time.monotonic())

    def show(self, name: str, order: Order) -> bytes:
        """Ask the process of a flow for what it sends on request alone, and return it as JSON."""
        with self._flow(name) as flow:
            pass
        with flow.show_lock:
            with self._lock:
                child = flow.child
                if child is None or flow.lifecycle.phase != "running":
                    raise RunError(f"flow {name!r} does not run, so there is nothing to be seen of it")
                flow.reply = None
            child.tell(order)
            with self._news:
                self._news.wait_for(lambda: flow.reply is not None or flow.child is not child, SHOW_S)
                reply = flow.latest_reply()
        if reply is None:
            raise RunError(f"the process of flow {name!r} did not answer within {SHOW_S:g} s")
        if reply.why is not None:
            raise RunError(reply.why)
        return bytes(reply.content)

    def add_query(self, name: str, query_name: str, text: str, step: str) -> dict[str, Any]:
        """Have a flow answer a query from now on, if it fits: by its settings, which take over as after any change."""
        check_name(query_name)
        with self._flow(name) as flow:
            settings, file = self._settings(flow), flow.file.path
        output = str(file.with_name(f"{name}-{query_name}.jsonl"))
        query = AddedQuery(text, output, "" if stream_name(step) == step else step)
        changed = msgspec.structs.replace(settings, queries={**settings.queries, query_name: query})
        self._ask(flow, Assignment("check", *self._place(flow), changed), CHECK_S)
        add_to(settings_beside(file), query_name, query)
        return self.status(name)

    def replay(self, name: str, ids: list[int], step: str | None, changes: Mapping[str, Any]) -> bytes:
        """Replay dead letters of a flow, which stands still meanwhile, and return what became of them as JSON.

        Where there are none such, nothing is done, and the flow runs on.
        """
        from headwater.io.dead import DeadLetterFolder

        if not DeadLetterFolder(self.home_of(name).dead).chosen(ids, step):
            return msgspec.json.encode({"released": [], "kept": {}, "report": None})
        with self._flow(name) as flow:
            if not flow.replaying.acquire(blocking=False):
                raise RunError(f"dead letters of flow {name!r} are being replayed already")
        try:
            with self._pause(flow):
                file, home = self._place(flow)
                task = Assignment("replay", file, home, self._settings(flow), ids, step, dict(changes))
                return bytes(self._ask(flow, task, REPLAY_S).result)
        finally:
            flow.replaying.release()

    @contextmanager
    def _pause(self, flow: ServedFlow) -> Iterator[None]:
        with self._lock:
            is_over = flow.lifecycle.phase == "ended"  # run once more, it could write over what is made meanwhile
            goes_on = flow.lifecycle.wanted and not is_over
        try:
            if not is_over:
                self._stop(flow)
            yield
        finally:
            with self._lock:
                if goes_on:
                    self._handle(flow, Want(True))

    def _stop(self, flow: ServedFlow) -> None:
        with self._news:
            self._handle(flow, Want(False))
            within_s = flow.lifecycle.stop_within_s + 2 * ABORT_S
            if not self._news.wait_for(lambda: flow.child is None, within_s):
                raise RunError(f"flow {flow.file.name!r} did not stop within {within_s:g} s")

    @contextmanager
    def _flow(self, name: str) -> Iterator[ServedFlow]:
        with self._lock:
            if name not in self._flows:
                close = suggestion(name, self._flows)
                raise UnknownFlowError(f"there is no flow {name!r} in {self.folder.path}{close}")
            yield self._flows[name]
