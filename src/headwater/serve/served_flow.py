"""One flow of the folder that is served, and all that is known of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import msgspec

from headwater.serve.child import Child
from headwater.serve.folder import FlowFile
from headwater.serve.history import History
from headwater.serve.home import FlowHome
from headwater.serve.lifecycle import Lifecycle
from headwater.serve.messages import Reply
from headwater.serve.settings import Settings
from headwater.web.prometheus import Family


@dataclass(frozen=True, slots=True)
class FlowVersion:
    """A flow's file and settings as they were when it was started."""

    print: str
    text: bytes
    settings: Settings


class ServedFlow:
    """One flow of the folder, and all that is known of it."""

    def __init__(self, file: FlowFile, home: FlowHome, lifecycle: Lifecycle) -> None:
        self.file, self.home, self.lifecycle = file, home, lifecycle
        self.settings = Settings()
        self.started_version: FlowVersion | None = None  #: what the process was given
        self.running_version: FlowVersion | None = None  #: the last of those that began to run
        self.child: Child | None = None
        self.log: list[str] = []  #: the last that was said by the process before
        self.history = History()
        self.graph: bytes | None = None
        self.sample: bytes | None = None
        self.report: bytes | None = None
        self.waits_for: str = ""  #: for what, while it starts
        self.families: list[Family] | None = None
        self.settled = False  #: it has begun, or could not, at least once
        self.news = 0  #: how often something has become known
        self.replaying = threading.Lock()
        self.reply: Reply | None = None  #: what its process has shown on request
        self.show_lock = threading.Lock()  #: one request at a time

    def latest_reply(self) -> Reply | None:
        """Return what its process has shown on request; None before it has."""
        return self.reply

    def status(self, now_s: float) -> dict[str, Any]:
        """Describe how the flow fares."""
        life = self.lifecycle
        return {
            "name": self.file.name,
            "file": str(self.file.path),
            "state": life.phase,
            "for_s": round(now_s - life.since_s, 1),
            "why": life.why or self.waits_for,
            "change_refused": life.change,
            "wanted": life.wanted,
            "restarts": life.restarts,
            "next_start_s": None if life.next_s is None else round(max(0.0, life.next_s - now_s), 1),
            "pid": None if self.child is None else self.child.pid,
            "runner": self.settings.on,
            "checkpoint": str(self.home.checkpoint) if self.settings.checkpoint else None,
            "report": None if self.report is None else msgspec.Raw(self.report),
        }
