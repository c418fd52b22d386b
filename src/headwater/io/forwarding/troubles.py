"""What a sink raises that no waiting mends: a slip in its own code, unlike a network that is cut."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from headwater.errors import HeadwaterError, one_line
from headwater.operators.fault_isolation import error_text

log = logging.getLogger(__name__)

#: What Python raises for a slip. Anything else, an error of a client library that nobody here knows included, may be the
#: network's doing, and is tried again for as long as it takes.
_SLIPS = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    ImportError,
    SyntaxError,
    RecursionError,
)
#: that the same records are tried, on a new connection each: a client that was cut off may leave such errors, too
_TIMES = 5
_QUIET_S = 60.0  #: between two warnings


class Troubles:
    """The attempts to reach a sink that have failed: how many, what is said of them, and which records are to blame."""

    def __init__(self, sink: str) -> None:
        self._sink = sink
        self.attempts = 0  #: all that failed
        self.mistakes = 0  #: those that failed for a slip in the sink's own code
        self.in_a_row = 0
        self._suspects: Sequence[int] = ()
        self._slipped = False  # whether the last of them was one
        self._times = 0  # that the same records have met a slip, without another error in between
        self._warned_s = {False: -_QUIET_S, True: -_QUIET_S}

    def note_failure(self, error: Exception, suspects: Sequence[int]) -> bool:
        """Take note of an attempt that failed at some records, if at any; True if these are to be set apart.

        So are records that meet a slip again and again: they must not be in the way of all others for ever.
        """
        self.attempts += 1
        self.in_a_row += 1
        slip = is_slip(error)
        self.mistakes += slip
        self._times = self._times + 1 if slip and suspects == self._suspects else int(slip)
        self._suspects, self._slipped = suspects, slip
        self._say(error, slip)
        if not suspects or self._times < _TIMES:
            return False
        self._times = 0
        return True

    @property
    def is_hopeless(self) -> bool:
        """Whether another attempt is not worth it when a run ends: the sink is away, or breaks at one part after another."""
        return self.in_a_row > (_TIMES if self._slipped else 0)

    def over(self) -> None:
        """Take note that an attempt went well."""
        if self.in_a_row:
            log.warning("sending to %s goes on", self._sink)
        self.in_a_row = self._times = 0

    def to_json(self) -> dict[str, int]:
        """Return what a report has of them."""
        return {"failed_attempts": self.attempts, **({"mistakes": self.mistakes} if self.mistakes else {})}

    def _say(self, error: Exception, slip: bool) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s[slip] <= _QUIET_S:
            return
        self._warned_s[slip] = now_s
        if slip:
            log.error("sink %s breaks by its own code, which waiting does not mend: %s", self._sink, error_line(error))
        else:
            log.warning("records for %s wait on disk, and are tried again: %s", self._sink, error_line(error))


def is_slip(error: Exception) -> bool:
    """Tell whether an error is one of the sink's own code, and no network's."""
    return isinstance(error, _SLIPS)


def error_line(error: Exception) -> str:
    """Return what an error says, in a line; one that is not ours with its kind and the line of the user's code."""
    return one_line(str(error) if isinstance(error, HeadwaterError) else error_text(error))
