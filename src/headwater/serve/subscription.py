"""What somebody who follows flows is told: each state and each sample once, as it becomes known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from headwater.serve.served_flow import ServedFlow

Event = tuple[str, bytes]  #: what it is, and it as JSON

_TELLING = ("state", "why", "change_refused", "pid", "restarts")  #: what of a status is worth telling when it changes


class _Known(NamedTuple):
    """What a follower knows of a flow."""

    news: int  #: how often something had become known
    status: dict[str, Any]
    sample: bytes | None


class Subscription:
    """Remembers what one follower was told: of one flow, with its samples, or of all of them without."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._known: dict[str, _Known] = {}

    def news(self, flows: Mapping[str, ServedFlow], now_s: float) -> list[Event]:
        """Return what there is to tell since this was last asked."""
        events: list[Event] = []
        for name, served in flows.items():
            known = self._known.get(name)
            if self._name in (None, name) and (known is None or known.news != served.news):
                events += self._of(name, served, known, now_s)
        for name in [name for name in self._known if name not in flows]:
            del self._known[name]
            events.append(("removed", msgspec.json.encode({"name": name})))
        return events

    def _of(self, name: str, served: ServedFlow, known: _Known | None, now_s: float) -> list[Event]:
        status = served.status(now_s)
        telling = {key: status[key] for key in _TELLING}
        self._known[name] = _Known(served.news, telling, served.sample)
        events: list[Event] = []
        if known is None or known.status != telling:
            events.append(("status", msgspec.json.encode(status)))
        if self._name is not None and served.sample is not None and (known is None or known.sample != served.sample):
            events.append(("sample", served.sample))
        return events
