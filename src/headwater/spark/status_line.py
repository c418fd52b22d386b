"""How far a run has come, how fast it goes, what waits, and how long it will take: in one line, for whoever watches."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from headwater.data.timestamps import event_time_reached
from headwater.metrics import Sample

_SPAN_S = 10.0  #: over which a rate is told
_LOOK_S = 1.0  #: between two looks at how far sources were read, for which Java or a disk is asked

Share = Callable[[], float | None]  #: which part of all that there is to read was read; None where nobody can tell


class StatusLine:
    """Looks at a run now and then; `shares` has a function for each source, `waiting` tells how many records wait."""

    def __init__(
        self,
        name: str,
        shares: Mapping[str, Share],
        waiting: Callable[[], int | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._shares, self._waiting, self._clock = name, shares, waiting, clock
        self._seen: deque[tuple[float, int]] = deque()
        self._first: tuple[float, float] | None = None  #: when a share was first known, and which
        self._looked_s = float("-inf")
        self._beside = ""

    def text(self, now: Sample) -> str:
        """Say how a run is that has measured this."""
        at_s = self._clock()
        self._seen.append((at_s, now.records_in))
        while at_s - self._seen[0][0] > _SPAN_S:
            self._seen.popleft()
        (since_s, before) = self._seen[0]
        rate = (now.records_in - before) / (at_s - since_s) if at_s > since_s else 0.0
        if at_s - self._looked_s >= _LOOK_S:
            self._looked_s = at_s
            self._beside = self._behind() + self._to_go(at_s)
        time_told = event_time_reached(now.watermarks_us)
        return f"{self._name}: {now.records_in:,} records, {rate:,.0f}/s{self._beside}{time_told}"

    def _behind(self) -> str:
        waiting = self._waiting()
        return "" if waiting is None else f", {waiting:,} behind"

    def _to_go(self, at_s: float) -> str:
        shares = [share() for share in self._shares.values()]
        shares_known = [share for share in shares if share is not None]
        if not shares_known or len(shares_known) < len(shares):
            return ""
        share = min(shares_known)
        if self._first is None:
            self._first = at_s, share
        began_s, began = self._first
        text = f", {share:.0%}"
        if share > began and at_s > began_s:
            text += f", {(1 - share) * (at_s - began_s) / (share - began):,.0f} s to go"
        return text


def records_behind(sources: list[Any]) -> int | None:
    """Return how many records wait in topics, by what Spark tells of a query's sources; None if it reads none."""
    waits = [_behind(source.latestOffset, source.endOffset) for source in sources]
    counts = [count for count in waits if count is not None]
    return sum(counts) if counts else None


def _behind(latest: str | None, end: str | None) -> int | None:
    try:
        there, ends = json.loads(latest or ""), json.loads(end or "")
        waits = [
            int(at) - int(ends.get(topic, {}).get(partition, 0))
            for topic, partitions in there.items()
            for partition, at in partitions.items()
        ]
    except (ValueError, TypeError, AttributeError):  # no offsets of Kafka's
        return None
    return sum(waits)
