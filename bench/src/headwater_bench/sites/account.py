"""What it cost and could have cost, what came out when, and which windows of each promise were kept."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headwater_bench.sites.flows import PRICES, SENSORS, Promised

_BEAT_S = 0.02  #: by which a look at what was written may be late


class Moment(NamedTuple):
    """How things were at a moment: where each flow ran, what each site could promise, and which sites were there."""

    at_s: float
    sites: Mapping[str, str | None]
    lent: Mapping[str, float]
    here: frozenset[str]


@dataclass
class Output:
    """The lines that a flow has written, counted as they come."""

    path: Path
    read: int = 0
    lines: int = 0
    points: list[tuple[float, int]] = field(default_factory=list)  #: (moment, lines so far), where there were more

    def look(self, now_s: float) -> None:
        """Count what is new."""
        if not self.path.exists() or self.path.stat().st_size == self.read:
            return
        with self.path.open("rb") as file:
            file.seek(self.read)
            new = file.read()
        self.read, self.lines = self.read + len(new), self.lines + new.count(b"\n")
        self.points.append((now_s, self.lines))

    def at(self, moment_s: float) -> int:
        """Return the lines there were at a moment."""
        before = [lines for at_s, lines in self.points if at_s <= moment_s]
        return before[-1] if before else 0


def cost(sites: Mapping[str, str | None], needed: Mapping[str, float]) -> float:
    """Return the price of the cores that flows hold where they are, see `where`."""
    return sum(needed[name] * PRICES[at] for name, at in sites.items() if at is not None)


def least(lent: Mapping[str, float], here: frozenset[str], needed: Mapping[str, float]) -> float:
    """Return what the cheapest way would cost that keeps every promise, by trying all: the optimum with hindsight."""
    names, places = list(needed), [site for site in PRICES if site != SENSORS and site in here]
    best = float("inf")
    for sites_chosen in product(places, repeat=len(names)):
        used: Counter[str] = Counter()
        for name, site in zip(names, sites_chosen, strict=True):
            used[site] += needed[name]  # type: ignore[assignment]  # cores are no whole numbers
        if all(used[site] <= lent[site] + 1e-9 for site in used):
            best = min(best, cost(dict(zip(names, sites_chosen, strict=True)), needed))
    return best


class Paid(NamedTuple):
    """What was paid, as shares of what the optimum with hindsight would have paid from the first moment to the last.

    That optimum is elsewhere the moment it is cheaper there; a policy waits until a reason holds, and a move takes time.
    """

    over_best: float  #: all of it
    moving: float  #: what was too much of it while a flow was on its way
    waiting: float  #: and while none was


def paid(moments: Sequence[Moment], needed: Mapping[str, float]) -> Paid:
    """Hold what was paid against the optimum with hindsight."""
    best = moving = waiting = 0.0
    for (before, after), at in zip(pairwise(moments), where(moments), strict=False):
        span_s, least_ = after.at_s - before.at_s, least(before.lent, before.here, needed)
        best += least_ * span_s
        more = (cost(at, needed) - least_) * span_s
        if None in before.sites.values():
            moving += more
        else:
            waiting += more
    return Paid(1 + (moving + waiting) / best, moving / best, waiting / best)


def where(moments: Sequence[Moment]) -> list[dict[str, str | None]]:
    """Return where each flow was at each moment; one that is on its way, where it came from."""
    places: list[dict[str, str | None]] = []
    for moment in moments:
        last = places[-1] if places else {}
        places.append({name: at or last.get(name) for name, at in moment.sites.items()})
    return places


class Kept(NamedTuple):
    """The windows of a promise, of one second each."""

    kept: int
    windows: int


def windows_kept(flow: Promised, output: Output, until_s: float) -> Kept:
    """Judge each second: was all that fell due in it written within the promised latency?"""
    began_s = float((flow.folder / "began").read_text())
    bound_s = flow.contract.latency_s or 0.0
    upto = _lines_upto(flow.folder / "undisturbed.jsonl")
    good = total = 0
    end_s = began_s + 1.0
    while end_s + bound_s < until_s:
        due = min(int((end_s - began_s) * flow.contract.rate_hz), len(upto) - 1)
        good += int(output.at(end_s + bound_s + _BEAT_S) >= upto[due])
        total, end_s = total + 1, end_s + 1.0
    return Kept(good, total)


def compared(flow: Promised) -> tuple[int, int]:
    """Return how many lines of an undisturbed run are lacking, and how many are there that should not be.

    PRED measures the error of a forecast by the latest average of any sensor, so that this one figure depends on what came
    first, on one engine too; it is left out.
    """
    counts = [Counter(_comparable_lines(flow.folder / f"{name}.jsonl")) for name in ("moved", "undisturbed")]
    return (counts[1] - counts[0]).total(), (counts[0] - counts[1]).total()


def _comparable_lines(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    return [re.sub(r'"result":[^,}]*', '"result":0', line) if '"kind":"MLR"' in line else line for line in lines]


def messages_done(flow: Promised, output: Output) -> Callable[[float], float]:
    """Return what tells how many messages were done at a moment, by the lines that each comes to: later ones to more."""
    upto = _lines_upto(flow.folder / "undisturbed.jsonl")
    return lambda at_s: float(np.interp(output.at(at_s), upto, np.arange(len(upto))))


def _lines_upto(path: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many lines an undisturbed run has for messages below each number."""
    numbers = [int(json.loads(line)["msg"]) for line in path.read_text().splitlines()]
    return np.concatenate([[0], np.cumsum(np.bincount(np.array(numbers, np.int64)))]).astype(np.int64)
