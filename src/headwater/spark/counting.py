"""How much Spark's own operators have read: they count nothing by step, so that is taken from what a query tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from headwater.flow.flow import Flow
from headwater.flow.steps import Read
from headwater.spark.checkpoint import counted_lines
from headwater.spark.heads import Head
from headwater.spark.native import reads

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


class RowsRead:
    """Counts rows of those sources whose first steps Spark runs itself, where these leave some out."""

    def __init__(self, flow: Flow, heads: Mapping[str, Head]) -> None:
        self._lock = Lock()
        self._is_wanted = any(head.narrows != name for name, head in heads.items())
        self._lines = counted_lines(flow, heads) if self._is_wanted else {}
        self._spans = {name: tuple(_spans(flow, head)) for name, head in heads.items()} if self._is_wanted else {}
        self._last_counted = -1  #: the last micro-batch that is counted
        self.rows = dict.fromkeys((source for head in heads.values() for source in head.sources), 0)

    def count(self, query: StreamingQuery) -> None:
        """Count what a query tells of micro-batches that are new."""
        if not self._is_wanted:
            return
        with self._lock:
            for number, counts in _batches_after(query, self._last_counted):
                self._last_counted = max(number, self._last_counted)
                first = 0
                for name, lines in self._lines.items():
                    for source, start, stop in self._spans[name]:
                        self.rows[source] += sum(counts[first + start : first + stop])
                    first += lines


def _spans(flow: Flow, head: Head) -> Iterator[tuple[str, int, int]]:
    """Return which of a head's lines in what a query tells are those of connectors, by source."""
    start = 0
    for source in head.sources:
        kind = flow.steps[source].kind
        native = reads(kind.source) if isinstance(kind, Read) else None
        if native is not None:
            yield source, start, start + native.offsets
            start += native.offsets + head.waits


def _batches_after(query: StreamingQuery, after: int) -> list[tuple[int, list[int]]]:
    """Return the micro-batches behind one, each with how many rows each source gave; those that did nothing are left out.

    Spark keeps them as objects of Java's, of which only those that are new are looked at.
    """
    from py4j.protocol import Py4JError

    batches: list[tuple[int, list[int]]] = []
    try:
        for report in reversed(query._jsq.recentProgress()):
            if report.batchId() <= after:
                break
            if "addBatch" in report.durationMs():
                batches.append((report.batchId(), [source.numInputRows() for source in report.sources()]))
    except (Py4JError, OSError):  # a Java that is gone tells nothing
        pass
    return batches
