"""One run, answered for over HTTP as a server answers for its flows: what `headwater run --web` shows."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headwater import __version__
from headwater.engine.peek import peek
from headwater.errors import RunError
from headwater.serve.history import History
from headwater.serve.lane import PEEK_S, SAMPLE_S, RunFollower, graph_of
from headwater.serve.messages import Order, raw
from headwater.serve.service import UnknownFlowError
from headwater.web.prometheus import exposition, families_of


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files of the run are; folders that are not there hold nothing."""

    checkpoint: Path
    dead: Path


class WatchedRun:
    """A run in this process, sampled once a second; safe for several threads."""

    def __init__(self, run: Any, checkpoint: Path | None, dead: Path | None) -> None:
        self._run = run
        self._name: str = run.flow.name
        self._checkpoint = checkpoint
        self._files = Files(checkpoint or Path(os.devnull), dead or Path(os.devnull))
        self._graph = bytes(raw(graph_of(run.flow)))
        self._history = History()
        self._sample: bytes | None = None
        self._news = threading.Condition()
        self._began_s = time.monotonic()
        self._stopped = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def start(self) -> None:
        """Look at the run from now on."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        follower = RunFollower(self._run)
        while not self._over.wait(SAMPLE_S):
            document = bytes(raw(follower.document(self._run.sample())))
            with self._news:
                self._sample = document
                self._history.add(time.monotonic(), document)
                self._news.notify_all()

    # -- what is known ----------------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Whether the run is being sampled."""
        return not self._over.is_set()

    @property
    def ready(self) -> bool:
        """Whether the run has begun: it has."""
        return True

    def describe(self) -> dict[str, Any]:
        """Say what this is."""
        return {
            "version": __version__,
            "folder": str(Path.cwd()),
            "state": "",
            "healthy": self.healthy,
            "ready": True,
            "stopping": self._stopped,
            "flows": 1,
        }

    def status(self, name: str) -> dict[str, Any]:
        """Describe how the run fares."""
        self._check_name(name)
        return {
            "name": self._name,
            "file": "",
            "state": "stopping" if self._stopped else "running",
            "for_s": round(time.monotonic() - self._began_s, 1),
            "why": "",
            "change_refused": None,
            "wanted": not self._stopped,
            "restarts": 0,
            "next_start_s": None,
            "pid": os.getpid(),
            "runner": self._run.runner,
            "checkpoint": None if self._checkpoint is None else str(self._checkpoint),
            "report": None,
        }

    def statuses(self) -> list[dict[str, Any]]:
        """Describe how the run fares, the only one there is."""
        return [self.status(self._name)]

    def log_of(self, name: str) -> list[str]:
        """Return no lines: they are on the terminal."""
        self._check_name(name)
        return []

    def sample_of(self, name: str) -> bytes | None:
        """Return the last sample as JSON; None before the first."""
        self._check_name(name)
        return self._sample

    def history_of(self, name: str, seconds: float) -> list[bytes]:
        """Return samples of the last so many seconds as JSON, oldest first."""
        self._check_name(name)
        return list(self._history.since(time.monotonic() - seconds))

    def home_of(self, name: str) -> Files:
        """Return where checkpoints and dead letters of the run are."""
        self._check_name(name)
        return self._files

    def graph_of(self, name: str) -> bytes:
        """Return the drawing of the flow as JSON."""
        self._check_name(name)
        return self._graph

    def follow(self, name: str | None, patience_s: float) -> Iterator[tuple[str, bytes] | None]:
        """Return the state once, and samples as they come; None after a while without any."""
        if name is not None:
            self._check_name(name)
        yield "status", msgspec.json.encode(self.status(self._name))
        sample: bytes | None = None
        while not self._over.is_set():
            with self._news:
                self._news.wait(patience_s)
                before, sample = sample, self._sample
            yield None if name is None or sample is None or sample is before else ("sample", sample)

    def metrics(self) -> str:
        """Write how the run fares, for Prometheus."""
        return exposition(families_of(self._run))

    def show(self, name: str, order: Order) -> bytes:
        """Show records as they pass a step, or how a promise fares."""
        self._check_name(name)
        if order.what == "records":
            return bytes(raw(peek(self._run, order.step, order.limit, PEEK_S)))
        if not hasattr(self._run, "promise"):
            raise RunError("the run was promised nothing; --promise would, see docs/rates.md")
        return bytes(raw(self._run.promise()))

    # -- what can be done -------------------------------------------------------------------------------------------------

    def act(self, name: str, what: str) -> dict[str, Any]:
        """Stop the run; it cannot be started again from here."""
        self._check_name(name)
        if what != "stop":
            raise RunError("a run that was started by hand can only be stopped; headwater serve starts flows again")
        self._stopped = True
        self._run.stop()
        return self.status(name)

    def add_query(self, name: str, query_name: str, text: str, step: str) -> dict[str, Any]:
        """Refuse: the run has the flow that it was started with."""
        self._check_name(name)
        raise RunError("a run keeps the flow that it was started with; headwater serve adds queries to flows that run")

    def replay(self, name: str, ids: list[int], step: str | None, changes: Mapping[str, Any]) -> bytes:
        """Refuse: the run goes on, and has its sinks open."""
        self._check_name(name)
        raise RunError("dead letters of a run are replayed when it is over: headwater dead replay")

    def _check_name(self, name: str) -> None:
        if name != self._name:
            raise UnknownFlowError(f"there is no flow {name!r} here; the run is of {self._name!r}")
