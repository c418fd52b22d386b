"""The search for the highest rate that a flow sustains: one below which every lower rate is kept too.

First up, by shares of full speed, with short trials: that takes little time, and what it finds may have been luck. Then
down from there, until the rate and rates below it are kept as they will be asked for, as long and as often.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headwater_bench.experiments.sustained import Subject, measured, together

#: of full speed, at which a flow works off what is always there: tried in turn, in search of the highest sustained rate
SHARES = (0.4, 0.6, 0.75, 0.85, 0.92, 0.97)
#: of a rate that was found: what has to be kept as well, in turn
BELOW = (1.0, 0.9, 0.8, 0.7)
DOWN = 0.94  #: the next rate that is tried, of one that was not confirmed
_FULL_HZ, _FULL_S = 1e9, 1.0  #: more than any flow can take, and how long it is offered


def highest_sustained(subject: Subject, seconds: float, visits: int = 1, *, trial_s: float | None = None) -> float:
    """Return the highest rate found that was kept `visits` times for `seconds`, and so were rates below it; 0 for none.

    `trial_s` is how long a rate is tried on the way up.
    """
    full_hz = max(full_speed(subject) for _ in range(2))  # others only slow it down
    found = climbed(lambda rate_hz: measured("", "engine", 0.0, rate_hz, subject, trial_s or seconds).is_kept, full_hz)
    return confirmed(partial(is_kept, subject, seconds=seconds, visits=visits), found)


def is_kept(subject: Subject, rate_hz: float, *, seconds: float, visits: int) -> bool:
    """Say whether a flow keeps a rate in all visits together."""
    return together([measured("", "engine", 0.0, rate_hz, subject, seconds) for _ in range(visits)]).is_kept


def full_speed(subject: Subject) -> float:
    """Return how many messages a second a flow works off that all wait: more than it sustains, by how much is open."""
    return measured("", "engine", 0.0, _FULL_HZ, subject, _FULL_S).out_hz


def climbed(is_kept: Callable[[float], bool], full_hz: float) -> float:
    """Try higher and higher shares of full speed until one is not kept, even when tried again; return the last kept.

    Where not even the first is, go down by halves; 0 where no rate is kept.
    """
    best = 0.0
    for share in SHARES:
        if not (is_kept(share * full_hz) or is_kept(share * full_hz)):
            break
        best = share * full_hz
    rate_hz = SHARES[0] * full_hz / 2
    while not best and rate_hz >= 1:
        best = rate_hz if is_kept(rate_hz) else 0.0
        rate_hz /= 2
    return best


def confirmed(is_kept: Callable[[float], bool], rate_hz: float) -> float:
    """Go down from a rate until it and those `BELOW` it are all kept; return that rate, 0 if there is none."""
    while rate_hz >= 1 and not all(is_kept(share * rate_hz) for share in BELOW):
        rate_hz *= DOWN
    return rate_hz if rate_hz >= 1 else 0.0
