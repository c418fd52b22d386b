"""How long records had to wait because of moves: by when each fell due, and when what became of it was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headwater_bench.sites.account import Output
from headwater_bench.sites.flows import Promised

_AROUND_S = 0.5  #: of records that fell due shortly before a move was decided, or after it was over
_BEGUN_S = 3.0  #: after its first record, before which a flow is no measure of what is usual


class Span(NamedTuple):
    """A time, such as that of a move from its decision until all parts were at work."""

    from_s: float
    to_s: float


class Waits(NamedTuple):
    """Of each line that a flow has written, when its message fell due, in that order, and how long it took from then on."""

    due_s: np.ndarray[tuple[int], np.dtype[np.float64]]
    waited_s: np.ndarray[tuple[int], np.dtype[np.float64]]

    def longest_s(self, span: Span) -> float:
        """Return how long the record took that took longest, of those that fell due in a span; 0 where none did."""
        first, last = np.searchsorted(self.due_s, [span.from_s, span.to_s])
        return float(self.waited_s[first:last].max(initial=0.0))


def waits_of(flow: Promised, output: Output) -> Waits:
    """Return how long each line took that was seen to be written."""
    began_s = float((flow.folder / "began").read_text())
    with output.path.open() as lines:
        numbers = np.array([json.loads(line)["msg"] for line in lines], np.int64)
    moments, counts = (np.array(each) for each in zip(*output.points, strict=True))
    first = numbers[: counts[-1]]
    due_s = began_s + first / flow.contract.rate_hz
    waited_s = moments[np.searchsorted(counts, np.arange(len(first)), side="right")] - due_s
    order = np.argsort(due_s, kind="stable")
    return Waits(due_s[order], waited_s[order])


class Pause(NamedTuple):
    """How long the record took that took longest around a move, and the one that did in as long a time without any."""

    longest_s: float
    usual_s: float

    @property
    def caused_s(self) -> float:
        """How much of it the move has caused."""
        return max(0.0, self.longest_s - self.usual_s)


def pauses_of(waits: Waits, moves: Sequence[Span], all_moves: Sequence[Span]) -> list[Pause]:
    """Return of each move of a flow the longest pause that it has caused any record.

    That is how much longer the record took that took longest than it is usual: than the one that did, in the middle of all
    equally long times in which no flow was moved, or as long ones as there were where moves followed soon on each other.
    """
    around = [Span(each.from_s - _AROUND_S, each.to_s + _AROUND_S) for each in moves]
    busy = [Span(each.from_s - _AROUND_S, each.to_s + _AROUND_S) for each in all_moves]
    return [Pause(waits.longest_s(each), _usual_s(waits, each.to_s - each.from_s, busy)) for each in around]


def _usual_s(waits: Waits, lasts_s: float, busy: Sequence[Span]) -> float:
    """Return the longest wait of a time of some length in which nothing was moved, in the middle of all such times."""
    still = _between(waits, busy)
    if not still:
        return float(np.median(waits.waited_s)) if len(waits.waited_s) else 0.0
    lasts_s = min(lasts_s, max(each.to_s - each.from_s for each in still))
    starts = [each.from_s + n * lasts_s for each in still for n in range(int((each.to_s - each.from_s) / lasts_s))]
    return float(np.median([waits.longest_s(Span(from_s, from_s + lasts_s)) for from_s in starts]))


def _between(waits: Waits, busy: Sequence[Span]) -> list[Span]:
    """Return the times in which nothing was moved, from when the flow was well under way."""
    if not len(waits.due_s):
        return []
    calm, from_s = [], float(waits.due_s[0]) + _BEGUN_S
    for each in [*sorted(busy), Span(float(waits.due_s[-1]), np.inf)]:
        calm += [Span(from_s, each.from_s)] if from_s < each.from_s else []
        from_s = max(from_s, each.to_s)
    return calm
