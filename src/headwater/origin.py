"""Whether a request of a browser is meant for us: for a host that is ours, and from a page of ours.

A Host that is neither an address nor a name of ours is a name that was made to point here (DNS rebinding). A page of another
origin may send requests with what the browser knows of us; it says where they come from, and is refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit


def is_ours(host: str, names: Collection[str]) -> bool:
    """Say whether a host, as a client names it, is an address, or one of our names.

    >>> is_ours("127.0.0.1:8470", ["localhost"]), is_ours("[::1]", []), is_ours("evil.example", ["localhost"])
    (True, True, False)
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        _ = urlsplit(f"//{host}").port
    except ValueError:
        return False
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_same(origin: str | None, host: str, fetch_site: str = "none") -> bool:
    """Say whether a request comes from a page of the host it is for, or from no page at all.

    >>> is_same(None, "a:1"), is_same("http://a:1", "a:1"), is_same("http://a:2", "a:1"), is_same(None, "a", "cross-site")
    (True, True, False, False)
    """
    try:
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return False
    except ValueError:  # what cannot be read is not ours
        return False
    return fetch_site in ("none", "same-origin")
