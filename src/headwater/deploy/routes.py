"""Where the streams of a part go to and come from at present: that may change while its process runs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

Stream = tuple[str, str, str]  #: what crosses, from which site, and to which


class Routes(msgspec.Struct, frozen=True):
    """Those of one part; `name` tells them from what was before, and is the same for the same."""

    name: str
    targets: dict[str, list[str]]  #: the sites that each stream goes to which leaves
    origins: dict[str, str]  #: the site that each stream comes from which comes in
    listens: list[str]  #: the sites that others can dial
    soon: dict[str, list[str]] = {}  #: the sites that a stream may go to next: it is kept for them, and not sent yet
    moving: bool = False  #: whether others will follow in a moment, for which records wait


class Outgoing(msgspec.Struct, frozen=True):
    """What a part has of a stream that leaves it, and the sites that it goes to have not for good; since the part began."""

    messages_waiting: int = 0
    bytes_kept: int = 0  #: on its disk
    dropped: int = 0  #: records that there was no room for, or that grew too old


def routes_of(site: str, name: str, streams: Iterable[Stream], listens: Iterable[str]) -> Routes:
    """Return the routes of a part, of all that crosses between sites.

    >>> routes_of("edge", "now", [("means", "edge", "cloud"), ("levels", "barn", "edge")], ["cloud"])
    Routes(name='now', targets={'means': ['cloud']}, origins={'levels': 'barn'}, listens=['cloud'], soon={}, moving=False)
    """
    targets: dict[str, list[str]] = {}
    origins: dict[str, str] = {}
    for stream, origin, target in sorted(set(streams)):
        if origin == site:
            targets.setdefault(stream, []).append(target)
        if target == site:
            origins[stream] = origin
    return Routes(name, targets, origins, sorted(set(listens)))
