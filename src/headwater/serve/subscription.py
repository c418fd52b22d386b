"""The events for a client that follows flows: each state and each sample once, as it becomes known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from headwater.serve.served_flow import ServedFlow

Event = tuple[str, bytes]  #: what it is, and it as JSON

#: what of a status is worth telling when it changes
_SUMMARY_KEYS = ("state", "why", "change_refused", "pid", "restarts")


class _Snapshot(NamedTuple):
    """What a follower knows of a flow."""

    news: int  #: how often something had become known
    status: dict[str, Any]
    sample: bytes | None


class Subscription:
    """Remembers what one client was sent: of one flow, with its samples, or of all of them without."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._snapshots: dict[str, _Snapshot] = {}

    def news(self, flows: Mapping[str, ServedFlow], now_s: float) -> list[Event]:
        """Return the events since the last call."""
        events: list[Event] = []
        for name, flow in flows.items():
            before = self._snapshots.get(name)
            if self._name in (None, name) and (before is None or before.news != flow.news):
                events += self._changes_of(name, flow, before, now_s)
        for name in [name for name in self._snapshots if name not in flows]:
            del self._snapshots[name]
            events.append(("removed", msgspec.json.encode({"name": name})))
        return events

    def _changes_of(self, name: str, flow: ServedFlow, before: _Snapshot | None, now_s: float) -> list[Event]:
        status = flow.status(now_s)
        summary = {key: status[key] for key in _SUMMARY_KEYS}
        self._snapshots[name] = _Snapshot(flow.news, summary, flow.sample)
        events: list[Event] = []
        if before is None or before.status != summary:
            events.append(("status", msgspec.json.encode(status)))
        if self._name is not None and flow.sample is not None and (before is None or before.sample != flow.sample):
            events.append(("sample", flow.sample))
        return events
