"""A figure that a site tells of itself and that changes with time: its price, its carbon intensity, the cores that it lends.

0.25                    a number that always holds
prices.csv              a file of `hour,value`: from which hour of the day (0 to 23, UTC), or date and time, it holds
command: spot-price     what a command prints; it is asked again each minute
"""

from __future__ import annotations

import csv
import math
import shlex
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from headwater.deploy.site.last_look import LastLook
from headwater.errors import RunError

_COMMAND = "command:"
_AGAIN_S = 60.0  #: between two times that a command is asked
_WAIT_S = 10.0  #: for its answer


class Quote:
    """Tells a figure as it is now. What cannot be found out is told by `why`; the figure before it holds meanwhile."""

    def __init__(self, option: str, text: str, *, again_s: float = _AGAIN_S) -> None:
        """Take what was said on a command line; RunError for what is no number, no such file, and no command."""
        self._option, self._last = option, None if text.startswith(_COMMAND) else _fixed(option, text)
        self.why = ""
        self._look: Callable[[float], float | None] = lambda at_s: self._last
        if text.startswith(_COMMAND):
            words = shlex.split(text.removeprefix(_COMMAND))
            if not words:
                raise RunError(f"{option} names no command after '{_COMMAND}'")
            look = LastLook[float | None](lambda: _number(option, _asked(option, words)), again_s, None)
            self._look = lambda at_s: look.value
        elif self._last is None:
            file = Path(text)
            _read(option, file)  # what is wrong with it is told at once
            self._look = lambda at_s: held_at(_read(option, file), at_s)

    def at(self, now_s: float) -> float | None:
        """Return the figure at a moment, in seconds since 1970; None before any is known."""
        try:
            value = self._look(now_s)
            self.why = ""
        except RunError as error:
            self.why = str(error)
        else:
            self._last = self._last if value is None else value
        return self._last


def held_at(hours: list[tuple[float, float]], at_s: float) -> float | None:
    """Return the value that holds at a moment: that of the last hour before it; None before the first date.

    Hours below 24 are of every day, and the last of them holds until the first of the next day.

    >>> held_at([(8, 0.3), (20, 0.1)], at_s=9 * 3600), held_at([(8, 0.3), (20, 0.1)], at_s=3600)
    (0.3, 0.1)
    """
    daily = hours[0][0] < 24
    now = (at_s % 86_400) / 3600 if daily else at_s
    past = [value for start, value in hours if start <= now]
    return past[-1] if past else hours[-1][1] if daily else None


def _fixed(option: str, text: str) -> float | None:
    """Return a number that was given as such; None for what must be a file."""
    try:
        return _number(option, text)
    except RunError:
        if Path(text).is_file():
            return None
        raise RunError(
            f"{option} is a number of 0 or more, a file of hours and values, or '{_COMMAND} …'; got {text!r}, and there is "
            "no such file"
        ) from None


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise RunError(f"{option}: expected a number of 0 or more; got {text.strip()[:80]!r}")
    return value


def _read(option: str, file: Path) -> list[tuple[float, float]]:
    """Return from when on which value holds: hours of the day, or seconds since 1970."""
    try:
        rows = [row for row in csv.reader(file.read_text().splitlines()) if row and not row[0].startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{option}: cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    hours = []
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise RunError(f"{option}: row {number} of {file} should be 'hour,value'; got {','.join(row)!r}")
        hours.append((_start(option, file, row[0].strip()), _number(option, row[1])))
    if not hours:
        raise RunError(f"{option}: {file} has no row; write one 'hour,value' for each hour at which the value changes")
    if len({start < 24 for start, _ in hours}) > 1:
        raise RunError(f"{option}: {file} mixes hours of the day with dates; use one of them")
    return sorted(hours)


def _start(option: str, file: Path, text: str) -> float:
    if text.isdecimal() and int(text) < 24:
        return float(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise RunError(
            f"{option}: {file}: expected an hour from 0 to 23, or a date such as 2026-03-01T14:00; got {text!r}"
        ) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _asked(option: str, words: list[str]) -> str:
    try:
        process = subprocess.run(words, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, ValueError) as error:
        raise RunError(f"{option}: cannot run {words[0]!r}: {getattr(error, 'strerror', None) or error}") from None
    except subprocess.TimeoutExpired:
        raise RunError(f"{option}: {words[0]!r} did not answer within {_WAIT_S:g} s") from None
    if process.returncode:
        text = (process.stderr.strip() or "nothing").splitlines()[-1]
        raise RunError(f"{option}: {words[0]!r} ended with {process.returncode}, and said {text[:200]!r}")
    return process.stdout
