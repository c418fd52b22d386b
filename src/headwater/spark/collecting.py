"""What the driver makes of the rows that leave a query: counts are added up, records sorted by the sink they are for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from headwater.spark.envelope import COUNTS, FIRST_SINK, STATE, Envelope, in_order
from headwater.spark.stages import Layout
from headwater.spark.tally import Tally

Collected = tuple[dict[str, list[Envelope]], dict[int, bytes]]


def collected(rows: Iterable[Any], layout: Layout, tally: Tally) -> Collected:
    """Return what goes to each sink, out of Arrow batches of rows, and the state of buckets where rows have it."""
    envelopes: dict[str, list[Envelope]] = defaultdict(list)
    states: dict[int, bytes] = {}
    for batch in rows:
        seqs, frames = batch.column("seq"), batch.column("frame")
        for at, target in enumerate(batch.column("target").to_pylist()):
            data = frames[at].as_buffer()
            if target == COUNTS:
                tally.add(data.to_pybytes())
            elif target == STATE:
                states[seqs[at].as_py()] = data.to_pybytes()
            else:
                envelopes[layout.sinks[target - FIRST_SINK]].append(Envelope.unpack(data))
    timed = {sink for sink in envelopes if layout.partitionings[sink].timed}
    return {s: (_by_sender if s in timed else _ordered)(each) for s, each in envelopes.items()}, states


def _by_sender(envelopes: list[Envelope]) -> list[Envelope]:
    """Return what goes to a sink that wants to know of event time, which each stage tells by itself."""
    senders = sorted({envelope.sender for envelope in envelopes})
    return [in_order([each for each in envelopes if each.sender == sender]) for sender in senders]


def _ordered(envelopes: list[Envelope]) -> list[Envelope]:
    """Return what goes to a sink in the order of its records, but for what tasks have written themselves."""
    rest = [envelope for envelope in envelopes if not envelope.words]
    return [envelope for envelope in envelopes if envelope.words] + ([in_order(rest)] if rest else [])
