"""The interface behind the HTTP API: a server of many flows, or one run that is watched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from headwater.serve.messages import Order


class FlowFiles(Protocol):
    """Where the files of a flow are."""

    @property
    def checkpoint(self) -> Path:
        """Where its checkpoints are."""

    @property
    def dead(self) -> Path:
        """Where its dead letters are."""


class Backend(Protocol):
    """Knows flows by name, and is asked by many threads; what it does not have or do is a RunError."""

    @property
    def healthy(self) -> bool:
        """Whether it does its work."""

    @property
    def ready(self) -> bool:
        """Whether every flow has begun, or could not."""

    def describe(self) -> dict[str, Any]:
        """Say what it is, and where."""

    def status(self, name: str) -> dict[str, Any]:
        """Describe how a flow fares."""

    def statuses(self) -> list[dict[str, Any]]:
        """Describe how all flows fare."""

    def log_of(self, name: str) -> list[str]:
        """Return the last lines that a flow's process has written."""

    def sample_of(self, name: str) -> bytes | None:
        """Return a flow's last sample as JSON; None before the first."""

    def history_of(self, name: str, seconds: float) -> list[bytes]:
        """Return samples of the last so many seconds as JSON, oldest first."""

    def home_of(self, name: str) -> FlowFiles:
        """Return where the files of a flow are."""

    def graph_of(self, name: str) -> bytes:
        """Return the drawing of a flow as JSON."""

    def follow(self, name: str | None, patience_s: float) -> Iterator[tuple[str, bytes] | None]:
        """Return (what, JSON) of a flow, or the states of all, as they come; None after a while without any."""

    def metrics(self) -> str:
        """Write how all flows fare, for Prometheus."""

    def act(self, name: str, what: str) -> dict[str, Any]:
        """Start, stop or restart a flow, and describe it."""

    def show(self, name: str, order: Order) -> bytes:
        """Ask a flow for what it sends on request alone, and return it as JSON."""

    def add_query(self, name: str, query_name: str, text: str, step: str) -> dict[str, Any]:
        """Have a flow answer a query from now on, and describe the flow."""

    def replay(self, name: str, ids: list[int], step: str | None, changes: Mapping[str, Any]) -> bytes:
        """Replay dead letters of a flow, and return what became of them as JSON."""
