"""The search for the highest rate that a flow sustains: one below which every lower rate is kept too.

What others on a machine do makes a rate that is sustained look as if it were not, for a moment or for many seconds; the
other way about is rare. So a miss is not believed at once, nor asked about again at once, while the same others are still
there. From full speed down by small steps, each rate is tried once, until one is kept; the rates below it are asked for,
round by round; and then those above it, which were missed on the way down, once more, up to the first that stays missed.

What a flow works off at full speed, when all is there at once, says what is plausible. Where a search leads far below
that, all of it is done again, since what disturbed it may be gone; the best of them counts. And it ends: after so many
visits it tells what it has, and whether that is worth anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from headwater_bench.experiments.sustained import Subject, measured, together

#: of full speed: the rate tried first, should that have been a bad moment
FIRST = 1.06
DOWN = 0.94  #: the next lower rate, of one
#: steps below a rate that was kept, of which each has to be kept as well: 0.88, 0.78 and 0.69 of it
BELOW = (2, 4, 6)
#: of full speed, below which a sustained rate is searched for once more: ETL keeps 0.83 to 0.95 of it
DOUBTED = 0.8
PLAUSIBLE = 0.65  #: of full speed, below which it is not believed at all
SEARCHES = 3  #: that are begun; the last goes down as far as it leads
ENOUGH = 2  #: searches that came to their end at a plausible rate
TWICE = 2  #: that the rate itself has to be kept, since a good moment may let one pass
BELIEVED = 3  #: misses, before a rate counts as not kept
#: the same below a rate that is kept: there a miss is either a bad moment or a valley, and would cost many steps
BELIEVED_BELOW = 4
VISITS = 36  #: to rates, after which the search ends
_FULL_HZ, _FULL_S = 1e9, 1.0  #: more than any flow can take, and how long it is offered


class Found(NamedTuple):
    """What a search found."""

    rate_hz: float  #: the highest rate that was kept, as those below it; 0 for none
    full_hz: float  #: what the flow works off when all is there at once
    visits: int
    is_sure: bool  #: whether the search came to its end, at a rate that is plausible by the full speed


def highest_sustained(subject: Subject, seconds: float, visits: int = 1) -> Found:
    """Return the highest rate that a flow keeps for `visits` times `seconds`, as it does rates below it."""
    return descended(partial(is_kept, subject, seconds=seconds, visits=visits), partial(full_speed, subject))


def is_kept(subject: Subject, rate_hz: float, *, seconds: float, visits: int) -> bool:
    """Say whether a flow keeps a rate in all visits together."""
    return together([measured("", "engine", 0.0, rate_hz, subject, seconds) for _ in range(visits)]).is_kept


def full_speed(subject: Subject) -> float:
    """Return how many messages a second a flow works off that all wait: more than it sustains, by how much is open."""
    return measured("", "engine", 0.0, _FULL_HZ, subject, _FULL_S).out_hz


def descended(is_kept: Callable[[float], bool], full_speed: Callable[[], float], limit: int = VISITS) -> Found:
    """Search from full speed down for the highest rate that is kept, as those below it are, in `limit` visits at most."""
    full_hz = kept_hz = 0.0
    visits, ended = 0, [0.0]
    for number in range(1, SEARCHES + 1):
        full_hz = max(full_hz, full_speed(), full_speed())  # others only slow it down
        search = _Search(is_kept, full_hz, limit - visits, 0.0 if number == SEARCHES else PLAUSIBLE)
        rate_hz, is_over = search.result()
        visits, kept_hz = visits + search.visits, max(kept_hz, rate_hz)
        full_hz = max(full_hz, full_speed())  # now as well: both at first may have been in one bad moment
        if is_over:
            ended.append(rate_hz)
        plausible = [each for each in ended if each >= PLAUSIBLE * full_hz]
        if visits >= limit or len(plausible) >= ENOUGH or max(ended) >= DOUBTED * full_hz:
            break
    is_sure = max(ended) >= PLAUSIBLE * full_hz > 0
    return Found(max(ended) or kept_hz, full_hz, visits, is_sure)


class _SpentError(Exception):
    """There is no visit left, or no rate that is worth one."""


class _Search:
    """One search; rates are numbered from the first one down, and those above it, should it be kept, are negative."""

    def __init__(self, is_kept: Callable[[float], bool], full_hz: float, limit: int, plausible: float) -> None:
        self._is_kept, self._first_hz, self._limit = is_kept, FIRST * full_hz, limit
        self._least_hz = max(1.0, plausible * full_hz)
        self._kept: Counter[int] = Counter()
        self._missed: Counter[int] = Counter()

    @property
    def visits(self) -> int:
        return self._kept.total() + self._missed.total()

    def result(self) -> tuple[float, bool]:
        """Return the highest rate that was kept, 0 for none, and whether the search came to its end."""
        try:
            return self._rate_hz(self._searched()), True
        except _SpentError:
            likely = [each for each in self._kept if self._missed[each] < BELIEVED]
            return max((self._rate_hz(each) for each in likely), default=0.0), False

    def _searched(self) -> int:
        step = self._descended()
        while True:
            borne = step = self._borne(step)
            while self._is_kept_in(step - 1, 1):
                step -= 1
            if step == borne:
                return step

    def _descended(self) -> int:
        """Go down from the top, each rate once, to the first that is kept."""
        step = 0
        while not self._try(step):
            step += 1
            if self._rate_hz(step) < self._least_hz:
                raise _SpentError
        return step

    def _borne(self, step: int) -> int:
        """Go down to the first that is kept twice, and below which others are kept."""
        while True:
            below = [step + each for each in BELOW]
            if not self._is_kept_in(step, TWICE):
                step += 1
            elif not self._are_kept(below):
                step = 1 + max(each for each in below if self._missed[each] >= BELIEVED_BELOW)
            else:
                return step

    def _are_kept(self, steps: Sequence[int]) -> bool:
        """Ask for each until it is kept, in turns: what is missed is asked for again when others may have gone."""
        while missing := [each for each in steps if not self._kept[each]]:
            if any(self._missed[each] >= BELIEVED_BELOW for each in missing):
                return False
            for each in missing:
                self._try(each)
        return True

    def _is_kept_in(self, step: int, times: int) -> bool:
        while self._kept[step] < times and self._missed[step] < BELIEVED:
            self._try(step)
        return self._kept[step] >= (times if self._missed[step] < BELIEVED else TWICE)

    def _try(self, step: int) -> bool:
        if self._rate_hz(step) < 1 or self.visits >= self._limit:
            raise _SpentError
        is_kept = self._is_kept(self._rate_hz(step))
        (self._kept if is_kept else self._missed)[step] += 1
        return is_kept

    def _rate_hz(self, step: int) -> float:
        return self._first_hz * DOWN**step
