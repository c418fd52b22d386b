"""The time of this process: nanoseconds since 1970 that run on evenly, whatever happens to the machine's clock.

A machine's clock is set while flows run: by hand, by a time server, after a night without power. What measures a
duration, paces records or says how old one is must not see that. So the clock is read once, and a monotonic one from then
on: `now_ns`. Only where a moment is compared with the clocks of others, `latest_ns` follows a clock that was set forward.
"""

from __future__ import annotations

import time

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


#: No clock that is right shows an earlier moment, since this code is younger: one that does was not set since power came
BUILT_NS = 1_767_225_600 * 10**9  # 2026-01-01


def now_ns() -> int:
    """Return the moment by the clock as it was when the process began, and has run on since."""
    return time.monotonic_ns() + _OFFSET_NS


def latest_ns() -> int:
    """Return the latest that it may be: by the machine's clock now, or as it was and has run on."""
    return max(now_ns(), time.time_ns())
