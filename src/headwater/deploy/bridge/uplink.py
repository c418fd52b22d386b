"""The uplink of a site, as its owner wants it used: how much of it bridges may take, at which hours, and who goes first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from headwater.deploy.bridge.room import Room
from headwater.errors import RunError, listed, suggestion
from headwater.flow.duration import microseconds_of
from headwater.io.amounts import bytes_per_second, nbytes
from headwater.io.log.bounds import WhenFull

_SETTINGS = ("rate", "hours", "first", "room", "age", "full")
_FULL: tuple[WhenFull, ...] = ("hold", "drop oldest", "drop lowest")
_HOURS = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")
_LOOK_S = 5.0  #: how often it is looked whether the hours have begun
_BURST_S = 0.1  #: of the rate that may go at once
_FIRST = 200  #: the priority of the stream that is named first; others follow, and those that are not named have 0


@dataclass(frozen=True, slots=True)
class Uplink:
    """`rate` is in bytes/s; `hours` are from and to in minutes of the day, by the site's clock; `first` names streams.

    Each stream may keep `room` bytes for a site that does not take them. When that is `full`, its sources are held; or what
    is oldest is dropped; or, with "drop lowest", that is done to streams which are not named, and those that are hold.
    What has waited for longer than `age_s` is dropped in any case: it is of no use any more.
    """

    rate: int | None = None
    hours: tuple[tuple[int, int], ...] = ()
    first: tuple[str, ...] = ()
    room: int = 10**9
    age_s: float | None = None
    full: WhenFull = "hold"

    @classmethod
    def read(cls, text: str) -> Uplink:
        """Read settings as they are typed.

        >>> Uplink.read("rate=500 kB/s,hours=22:00-06:00,first=alarms")
        Uplink(rate=500000, hours=((1320, 360),), first=('alarms',), room=1000000000, age_s=None, full='hold')
        """
        settings: dict[str, str] = {}
        for each in filter(str.strip, text.split(",")):
            name, equals, value = (part.strip() for part in each.partition("="))
            if not equals or name not in _SETTINGS or not value:
                usage = f"it takes {listed(_SETTINGS)}, each as NAME=VALUE"
                raise RunError(f"--uplink does not know {each.strip()!r}; {usage}{suggestion(name, _SETTINGS)}")
            settings[name] = value
        full = settings.get("full", "hold")
        if full not in _FULL:
            raise RunError(f"a full buffer can {listed(_FULL)}; --uplink says {full!r}{suggestion(full, _FULL)}")
        return cls(
            rate=bytes_per_second(settings["rate"]) if "rate" in settings else None,
            hours=tuple(_hours(each) for each in settings.get("hours", "").split()),
            first=tuple(each.strip() for each in settings.get("first", "").split("+") if each.strip()),
            room=nbytes(settings["room"]) if "room" in settings else 10**9,
            age_s=microseconds_of("age of --uplink", settings["age"]) / 1e6 if "age" in settings else None,
            full=full,
        )

    def priority(self, stream: str) -> int:
        """Return how important a stream is; the more, the sooner it goes."""
        return max(1, _FIRST - self.first.index(stream)) if stream in self.first else 0

    def room_of(self, stream: str) -> Room:
        """Return how much a stream may keep, and what happens then."""
        if self.full == "drop lowest":
            return Room(self.room, self.age_s, "hold" if stream in self.first else "drop oldest")
        return Room(self.room, self.age_s, self.full)

    def is_open(self, minute: int) -> bool:
        """Say whether records may go at a minute of the day.

        >>> [Uplink(hours=((22 * 60, 6 * 60),)).is_open(hour * 60) for hour in (21, 22, 5, 6)]
        [False, True, True, False]
        """
        if not self.hours:
            return True
        return any(
            start <= minute < end if start < end else minute >= start or minute < end for start, end in self.hours
        )


def _hours(text: str) -> tuple[int, int]:
    match = _HOURS.fullmatch(text)
    if match is not None:
        hour, minute, end_hour, end_minute = map(int, match.groups())
        start, end = hour * 60 + minute, end_hour * 60 + end_minute
        if max(minute, end_minute) < 60 and start < 1440 and end <= 1440 and start != end:
            return start, end
    raise RunError(f"hours are written as 22:00-06:00, several with a space between them; got {text!r}")


def _minute() -> int:
    now = time.localtime()
    return now.tm_hour * 60 + now.tm_min


class Meter:
    """Says when the uplink takes more; knows no network."""

    def __init__(self, uplink: Uplink, minute: Callable[[], int] = _minute) -> None:
        self._uplink, self._minute = uplink, minute
        self._due_s = 0.0  #: when the rate lets more go

    @property
    def most_bytes(self) -> int | None:
        """How much should go at once; one message may pass it."""
        return None if self._uplink.rate is None else max(1, int(self._uplink.rate * _BURST_S))

    def wait_s(self, now_s: float) -> float:
        """Return how long nothing may go; 0 if it may now."""
        if not self._uplink.is_open(self._minute()):
            return _LOOK_S
        return max(0.0, self._due_s - now_s)

    def sent(self, size: int, now_s: float) -> None:
        """Take note of bytes that went."""
        if self._uplink.rate is not None:
            self._due_s = max(self._due_s, now_s - _BURST_S) + size / self._uplink.rate
