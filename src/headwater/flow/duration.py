"""Durations as people write them: "10 s", "100 ms" or a timedelta; inside, whole microseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from headwater.errors import FlowError, RunError

_MICROSECONDS = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
}
_LONGEST = 2**62  # beyond, sums with moments would not fit 64 bits: 146,000 years
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+?)(s?)\s*", re.IGNORECASE)

Duration = str | timedelta


def microseconds(duration: Duration) -> int:
    """Return a duration in microseconds.

    >>> microseconds("1.5 s"), microseconds("2 minutes"), microseconds(timedelta(milliseconds=3))
    (1500000, 120000000, 3000)
    """
    if isinstance(duration, timedelta):
        if duration < timedelta(0):
            raise FlowError(f"a duration is 0 or more; got {duration.total_seconds():g} s")
        return _bounded(duration, duration // timedelta(microseconds=1))
    if not isinstance(duration, str):
        raise FlowError(
            f"a duration is text with a unit, such as '10 s', or a timedelta; got {duration!r}"
            f"; did you mean '{duration} s'?"
        )
    match = _FORM.fullmatch(duration)
    if match:
        amount, unit, plural = match.groups()
        for name in (unit.lower(), (unit + plural).lower()):
            if name in _MICROSECONDS:
                return _bounded(duration, float(amount) * _MICROSECONDS[name])
    bare = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*", duration)
    hint = f"; did you mean '{bare[1]} s' or '{bare[1]} ms'?" if bare else ""
    if match and match[2].lower() == "m":
        hint = f"; did you mean '{match[1]} min' or '{match[1]} ms'?"
    raise FlowError(
        f"cannot read duration {duration!r}: expected a number and a unit (us, ms, s, min, h, d), such as '100 ms'{hint}"
    )


def _bounded(duration: Duration, microseconds: float) -> int:
    if microseconds >= _LONGEST:
        raise FlowError(f"a duration is shorter than {_LONGEST // _MICROSECONDS['d']:,} d; got {str(duration)!r}")
    return round(microseconds)


def microseconds_of(option: str, text: str) -> int:
    """Return a duration that somebody gave for an option, which an error names."""
    try:
        return microseconds(text)
    except FlowError as error:
        raise FlowError(f"{option}: {error}") from None


def above_zero(name: str, seconds: float | None) -> None:
    """Raise RunError for a number of seconds that no time can be: 0 or less, no number, without end; None is none."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < seconds < float("inf")):
        raise RunError(f"{name} must be a number of seconds above 0; got {seconds!r}")


def duration_text(duration_us: int) -> str:
    """Write microseconds as a person would.

    >>> duration_text(1_500_000), duration_text(60_000_000), duration_text(250)
    ('1.5 s', '1 min', '250 us')
    """
    for unit in ("d", "h", "min", "s", "ms"):
        if duration_us >= _MICROSECONDS[unit]:
            return f"{duration_us / _MICROSECONDS[unit]:g} {unit}"
    return f"{duration_us} us"
