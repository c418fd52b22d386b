"""The search for the highest rate that a flow sustains: one below which every lower rate is kept too.

From full speed down, by small steps. What a machine's host does in a bad moment costs a step of 6 % then, and is tried
again before that; on the way up it had ended the search at the rate before, a quarter lower. What a good moment has let
pass is found out by asking for it again, with rates below it, as long and as often as it will be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headwater_bench.experiments.sustained import Subject, measured, together

#: of full speed, at which a flow works off what is always there: the rate tried first, should that have been a bad moment
FIRST = 1.06
#: of a rate that was found: what has to be kept as well, in turn
BELOW = (1.0, 0.9, 0.8, 0.7)
DOWN = 0.94  #: the next rate that is tried, of one that was not kept
_FULL_HZ, _FULL_S = 1e9, 1.0  #: more than any flow can take, and how long it is offered


def highest_sustained(subject: Subject, seconds: float, visits: int = 1, *, trial_s: float | None = None) -> float:
    """Return the highest rate found that was kept `visits` times for `seconds`, and so were rates below it; 0 for none.

    `trial_s` is how long a rate is tried on the way down to one that may be it.
    """
    full_hz = max(full_speed(subject) for _ in range(2))  # others only slow it down
    return descended(
        partial(is_kept, subject, seconds=trial_s or seconds, visits=1),
        partial(is_kept, subject, seconds=seconds, visits=visits),
        FIRST * full_hz,
    )


def is_kept(subject: Subject, rate_hz: float, *, seconds: float, visits: int) -> bool:
    """Say whether a flow keeps a rate in all visits together."""
    return together([measured("", "engine", 0.0, rate_hz, subject, seconds) for _ in range(visits)]).is_kept


def full_speed(subject: Subject) -> float:
    """Return how many messages a second a flow works off that all wait: more than it sustains, by how much is open."""
    return measured("", "engine", 0.0, _FULL_HZ, subject, _FULL_S).out_hz


def descended(passes: Callable[[float], bool], is_kept: Callable[[float], bool], rate_hz: float) -> float:
    """Go down from a rate until it passes, and it and those `BELOW` it are all kept; return that rate, 0 if there is none.

    What is not kept is asked for once more before the rate is given up.
    """
    while rate_hz >= 1:
        if _in_two(passes, rate_hz) and all(_in_two(is_kept, share * rate_hz) for share in BELOW):
            return rate_hz
        rate_hz *= DOWN
    return 0.0


def _in_two(is_kept: Callable[[float], bool], rate_hz: float) -> bool:
    return is_kept(rate_hz) or is_kept(rate_hz)
