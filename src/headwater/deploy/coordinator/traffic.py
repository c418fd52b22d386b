"""How much flows, from what sites report: records each second, on every stream that crosses, and from each source."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.deploy.chart import Chart
from headwater.deploy.cut import outlet_of

_SPAN_S = 5.0  #: over which a rate is taken: a part counts each second, and is heard of twice as often


class Traffic:
    """Steps of one part, such as its sinks and bridges: how many records each has taken, and how many a second of late."""

    def __init__(self, span_s: float = _SPAN_S) -> None:
        self._id, self._span_s = "", span_s
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()

    def note(self, id: str, at_s: float, counts: Mapping[str, int]) -> None:
        """Take note of a report; a part that was started again counts anew, and a site whose clock was set back."""
        last_s, last = self._samples[-1] if self._samples else (at_s, {})
        if id != self._id or last_s > at_s or any(counts.get(sink, 0) < count for sink, count in last.items()):
            self._samples.clear()
        self._id = id
        self._samples.append((at_s, counts))
        while len(self._samples) > 2 and self._samples[0][0] < at_s - self._span_s:
            self._samples.popleft()

    @property
    def told_s(self) -> float:
        """For how long it was told of, up to the span that counts."""
        return self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0

    def hz(self, sink: str) -> float:
        """Return how many records a second a sink has taken of late."""
        if len(self._samples) < 2:
            return 0.0
        (from_s, before), (to_s, now) = self._samples[0], self._samples[-1]
        return max(0, now.get(sink, 0) - before.get(sink, 0)) / max(to_s - from_s, 1e-3)

    def of(self, streams: Iterable[str]) -> list[dict[str, Any]]:
        """Describe streams that the part sends, as far as it has told of them."""
        counts = self._samples[-1][1] if self._samples else {}
        sinks = ((stream, outlet_of(stream)) for stream in streams)
        return [
            {"stream": stream, "records": counts[sink], "hz": round(self.hz(sink), 1)}
            for stream, sink in sinks
            if sink in counts
        ]


def link(one: str, other: str, crossing: Iterable[str], traffic: Traffic | None, chart: Chart | None) -> dict[str, Any]:
    """Describe what crosses from a site to another, as the sender tells it, and how far apart they are in the net."""
    streams = [] if traffic is None else traffic.of(crossing)
    return {
        "from": one,
        "to": other,
        "streams": streams,
        "hz": round(sum(stream["hz"] for stream in streams), 1),
        "latency_s": None if chart is None else chart.between(one, other),
    }
