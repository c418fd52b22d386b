"""What the process of the dashboard gets over its standard input when it starts: a token is no command-line word."""

from __future__ import annotations

import msgspec

#: the pages that an API of flows has
FLOW_PAGES = ("flow", "time", "promises", "dead", "query")


class Settings(msgspec.Struct, frozen=True):
    """Where the API is, and where the pages should be."""

    api: str  #: such as http://127.0.0.1:8470
    token: str  #: of the API, and of who may look at the pages
    host: str = "127.0.0.1"
    port: int = 0  #: any that is free
    names: list[str] = []  #: that browsers may know this machine by, beside its addresses
    pages: tuple[str, ...] = FLOW_PAGES  #: those that the API answers for


class Began(msgspec.Struct, frozen=True):
    """What the process says when it answers."""

    url: str
