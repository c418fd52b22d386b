"""A contract: the rate and the latency that a flow is promised, as plain data. `headwater.rate` admits and keeps it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from headwater.errors import FlowError, listed, suggestion
from headwater.flow.duration import Duration, duration_text, microseconds

#: what becomes of records above the promised rate: they are served as far as there is room, dropped and counted, or not
#: read before it is their turn
Above = Literal["best effort", "shed", "block"]

BURST_S = 0.1
"""A burst, unless one is given: what comes in so many seconds at the promised rate."""

_RATE = re.compile(r"(\d[\d ,_]*(?:\.\d+)?) ?([kM]?) ?/ ?(s|sec|second|min|minute|h|hour)")
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6}


@dataclass(frozen=True, slots=True)
class Contract:
    """What is promised to whoever uses a flow."""

    rate_hz: float
    """Records per second that its sources may bring, all together."""
    latency_s: float | None = None
    """How old a record may be at a sink."""
    burst: float | None = None
    """Records that may come at once on top of the rate; what comes in 0.1 s unless said."""
    above: Above = "best effort"
    """What becomes of records above the rate and the burst."""

    def __post_init__(self) -> None:
        for name in ("rate_hz", "latency_s", "burst"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise FlowError(f"contract: {name} must be above 0; got {value}")
        if self.above not in get_args(Above):
            choices = get_args(Above)
            raise FlowError(
                f"contract: above is one of {listed(choices)}; got {self.above!r}{suggestion(str(self.above), choices)}"
            )

    @classmethod
    def of(
        cls,
        rate: str | float,
        latency: Duration | None = None,
        *,
        burst: float | None = None,
        above: Above = "best effort",
    ) -> Contract:
        """Read a contract as people write it.

        >>> Contract.of("20 000/s", "50 ms")
        Contract(rate_hz=20000.0, latency_s=0.05, burst=None, above='best effort')
        """
        return cls(rate_hz(rate), None if latency is None else microseconds(latency) / 1e6, burst, above)

    @property
    def burst_records(self) -> float:
        """Records that may come at once on top of the rate."""
        return BURST_S * self.rate_hz if self.burst is None else self.burst

    def __str__(self) -> str:
        within = "" if self.latency_s is None else f" within {duration_text(round(self.latency_s * 1e6))}"
        return f"{rate_text(self.rate_hz)}{within}"


def rate_text(hz: float) -> str:
    """Write a rate as a person would, and as `rate_hz` reads it.

    >>> rate_text(2_000_000), rate_text(1.5)
    ('2 000 000/s', '1.5/s')
    """
    return f"{hz:,.0f}/s".replace(",", " ") if hz >= 1000 else f"{hz:.4g}/s"


def rate_hz(rate: str | float) -> float:
    """Return records per second, from a number of them or from text with a unit of time.

    >>> rate_hz("20 000/s"), rate_hz("1.5k/s"), rate_hz("90/min"), rate_hz(250)
    (20000.0, 1500.0, 1.5, 250.0)
    """
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        return float(rate)
    match = _RATE.fullmatch(rate.strip()) if isinstance(rate, str) else None
    if match is None:
        bare = re.fullmatch(r"[\d ,_.]+", str(rate))
        raise FlowError(
            f"cannot read rate {rate!r}: expected records by time (s, min, h), such as '20 000/s'"
            + (f"; did you mean '{rate}/s'?" if bare else "")
        )
    digits, times, unit = match.groups()
    return float(re.sub("[ ,_]", "", digits)) * _TIMES[times] / (microseconds(f"1 {unit}") / 1e6)
