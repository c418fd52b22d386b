"""The flows of a folder at work, for whoever asks: how they fare, and what is to be done with them."""

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

    def described(self) -> dict[str, Any]:
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
        with self._known(name) as served:
            return served.status(time.monotonic())

    def statuses(self) -> list[dict[str, Any]]:
        """Describe how all flows fare."""
        with self._lock:
            now_s = time.monotonic()
            return [self._flows[name].status(now_s) for name in sorted(self._flows)]

    def log_of(self, name: str) -> list[str]:
        """Return the last lines that a flow's process has written."""
        with self._known(name) as served:
            return served.log if served.child is None else list(served.child.lines)

    def sample_of(self, name: str) -> bytes | None:
        """Return a flow's last sample as JSON; None before the first."""
        with self._known(name) as served:
            return served.sample

    def history_of(self, name: str, seconds: float) -> list[bytes]:
        """Return samples of the last so many seconds as JSON, oldest first."""
        with self._known(name) as served:
            return list(served.history.since(time.monotonic() - seconds))

    def home_of(self, name: str) -> FlowHome:
        """Return what is kept of a flow."""
        with self._known(name) as served:
            return served.home

    def graph_of(self, name: str) -> bytes:
        """Return the drawing of a flow as JSON; of one that has not run yet, its file is looked at."""
        with self._known(name) as served:
            if served.graph is not None:
                return served.graph
        answer = self._ask(served, Assignment("check", *self._place(served), self._settings(served)), CHECK_S)
        return bytes(answer.found)

    def follow(self, name: str | None, patience_s: float) -> Iterator[tuple[str, bytes] | None]:
        """Return (what, JSON) of a flow, or the states of all, as they come; None after a while without any."""
        subscription = Subscription(name)
        until_s = time.monotonic() + patience_s
        while True:
            with self._news:
                if name is not None and name not in self._flows:
                    return
                found: list[tuple[str, bytes] | None] = [*subscription.news(self._flows, time.monotonic())]
                if not found:
                    if self._shut and self.ended.is_set():
                        return
                    self._news.wait(min(1.0, patience_s))
                    if time.monotonic() > until_s:
                        found.append(None)
            if found:
                until_s = time.monotonic() + patience_s
            yield from found

    def metrics(self) -> str:
        """Ask all flows how they fare, and write it for Prometheus; one that does not answer in time is left out."""
        with self._scrapes:
            with self._lock:
                asked_now = [served for served in self._flows.values() if served.lifecycle.phase == "running"]
                for served in asked_now:
                    served.families = None
                children = [(served.child, served) for served in asked_now if served.child is not None]
            for child, _ in children:
                child.tell(Order("metrics"))
            with self._news:
                self._news.wait_for(lambda: all(s.families is not None for _, s in children), SCRAPE_S)
                found = [
                    families.named(served.file.name, each) for _, served in children for each in served.families or []
                ]
                found += families.of_flows(self._flows)
        return exposition(found)

    # -- what can be asked for --------------------------------------------------------------------------------------------

    def act(self, name: str, what: str) -> dict[str, Any]:
        """Start, stop or restart a flow, and describe it; what is stopped stays so when the server is started again."""
        with self._known(name) as served:
            if self._shut:
                raise RunError("the server is stopping; nothing is started or stopped any more")
            if served.replaying.locked():
                raise RunError(f"dead letters of flow {name!r} are being replayed; try again when that is done")
            served.home.note_stopped(what == "stop")
            self._handle(served, Restart() if what == "restart" else Want(what == "start"))
            return served.status(time.monotonic())

    def show(self, name: str, order: Order) -> bytes:
        """Ask the process of a flow for what it tells on request alone, and return it as JSON."""
        with self._known(name) as served:
            pass
        with served.showing:
            with self._lock:
                child = served.child
                if child is None or served.lifecycle.phase != "running":
                    raise RunError(f"flow {name!r} does not run, so there is nothing to be seen of it")
                served.shown = None
            child.tell(order)
            with self._news:
                self._news.wait_for(lambda: served.shown is not None or served.child is not child, SHOW_S)
                found = served.told()
        if found is None:
            raise RunError(f"the process of flow {name!r} did not answer within {SHOW_S:g} s")
        if found.why is not None:
            raise RunError(found.why)
        return bytes(found.found)

    def add_query(self, name: str, added: str, text: str, step: str) -> dict[str, Any]:
        """Have a flow answer a query from now on, if it fits: by its settings, which take over as after any change."""
        check_name(added)
        with self._known(name) as served:
            settings, file = self._settings(served), served.file.path
        output = str(file.with_name(f"{name}-{added}.jsonl"))
        asked = AddedQuery(text, output, "" if stream_name(step) == step else step)
        wanted = msgspec.structs.replace(settings, queries={**settings.queries, added: asked})
        self._ask(served, Assignment("check", *self._place(served), wanted), CHECK_S)
        add_to(settings_beside(file), added, asked)
        return self.status(name)

    def replay(self, name: str, ids: list[int], step: str | None, changes: Mapping[str, Any]) -> bytes:
        """Replay dead letters of a flow, which stands still meanwhile, and return what became of them as JSON."""
        with self._known(name) as served:
            if not served.replaying.acquire(blocking=False):
                raise RunError(f"dead letters of flow {name!r} are being replayed already")
        try:
            with self._pausing(served):
                file, home = self._place(served)
                task = Assignment("replay", file, home, self._settings(served), ids, step, dict(changes))
                return bytes(self._ask(served, task, REPLAY_S).found)
        finally:
            served.replaying.release()

    @contextmanager
    def _pausing(self, served: ServedFlow) -> Iterator[None]:
        with self._news:
            wanted = served.lifecycle.wanted
            self._handle(served, Want(False))
            within_s = served.lifecycle.stop_within_s + 2 * ABORT_S
            if not self._news.wait_for(lambda: served.child is None, within_s):
                raise RunError(f"flow {served.file.name!r} did not stop within {within_s:g} s")
        try:
            yield
        finally:
            with self._lock:
                if wanted:
                    self._handle(served, Want(True))

    @contextmanager
    def _known(self, name: str) -> Iterator[ServedFlow]:
        with self._lock:
            if name not in self._flows:
                close = suggestion(name, self._flows)
                raise UnknownFlowError(f"there is no flow {name!r} in {self.folder.path}{close}")
            yield self._flows[name]
