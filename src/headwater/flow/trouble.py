"""What is done about records that break a step: they are set apart, tried again, or end the run. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from headwater.errors import FlowError, listed, suggestion
from headwater.flow.duration import Duration, duration_text, microseconds

Then = Literal["dead letter", "stop"]

DEAD_LETTER: Then = "dead letter"  #: the usual: records that break a step go to the flow's dead letters
_TIMES = 3  #: how often, where neither a number nor a time is said


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again what failed, after a pause that doubles each time; only then it is a dead letter, or ends the run.

    >>> retry(times=5, backoff="200 ms")
    Retry(times=5, within_us=None, backoff_us=200000, longest_us=30000000, then='dead letter')
    """

    times: int | None  #: how often it is tried again, None for any number within the time
    within_us: int | None  #: for how long, counted from the first failure
    backoff_us: int
    longest_us: int  #: no pause is longer
    then: Then

    def pause_us(self, failures: int, since_us: int) -> int | None:
        """Return how long to wait after so many failures, the first of them so long ago; None to give up.

        >>> [retry(times=3, backoff="1 s", longest="3 s").pause_us(n, 0) for n in (1, 2, 3, 4)]
        [1000000, 2000000, 3000000, None]
        >>> retry(within="10 s", backoff="8 s").pause_us(2, 8_000_000)  # one last time when the time is up
        2000000
        """
        if self.times is not None and failures > self.times:
            return None
        pause_us = min(self.backoff_us << min(failures - 1, 40), self.longest_us)
        if self.within_us is None:
            return pause_us
        return None if since_us >= self.within_us else min(pause_us, self.within_us - since_us)

    def __str__(self) -> str:
        often = f"{self.times} times" if self.times is not None else ""
        within = f"within {duration_text(self.within_us)}" if self.within_us is not None else ""
        return " ".join(part for part in ("retry", often, within, "then", self.then) if part)


OnError = Then | Retry


def retry(
    times: int | None = None,
    *,
    within: Duration | None = None,
    backoff: Duration = "200 ms",
    longest: Duration = "30 s",
    then: Then = DEAD_LETTER,
) -> Retry:
    """Return the policy to try a failed record or batch again: so many `times`, or `within` a time, or until either is up.

    The first pause is `backoff`; each is twice the one before, up to `longest`. What still fails goes where `then` says.
    """
    if times is None and within is None:
        times = _TIMES
    if times is not None and (not isinstance(times, int) or isinstance(times, bool) or times < 1):
        raise FlowError(f"retry: times must be a whole number of at least 1; got {times!r}")
    backoff_us, longest_us = microseconds(backoff), microseconds(longest)
    within_us = None if within is None else microseconds(within)
    if not 0 < backoff_us <= longest_us or within_us == 0:
        raise FlowError(
            f"retry: backoff must be above 0 and at most longest, and within above 0; got backoff {backoff!r}, "
            f"longest {longest!r}, within {within!r}"
        )
    _check_then(then, "retry: then")
    return Retry(times, within_us, backoff_us, longest_us, then)


def check_on_error(on_error: object, *, retries: bool) -> None:
    """Raise FlowError for what is no policy; `retries` says whether there is something that can be tried again."""
    if not (retries and isinstance(on_error, Retry)):
        _check_then(on_error, "on_error", " or retry(...)" if retries else "")


def _check_then(then: object, what: str, more: str = "") -> None:
    choices = get_args(Then)
    if then not in choices:
        raise FlowError(f"{what} is one of {listed(choices)}{more}; got {then!r}{suggestion(str(then), choices)}")
