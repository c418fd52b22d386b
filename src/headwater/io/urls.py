"""URLs as they may be shown: no message, drawing or log has a password in it, however the URL was mistyped."""

from __future__ import annotations

import re

#: what comes before a user's name: a scheme, or JDBC's two or three
_PREFIX = re.compile(r"(?:jdbc:[a-z0-9]+:(?:thin:|oci:)?)?(?:[a-z][a-z0-9]*://|//)?", re.IGNORECASE)


def shown(url: str) -> str:
    """Return a URL without user, password and options.

    A password may hold any sign if it was not written as %40 and the like, so that only what is sure to be none of it
    is kept.

    >>> shown("mqtt://me:s3cret@host:1883/topic?qos=1"), shown("mqtt://me:s3/cr@et@host"), shown("mqtt://me:a?b@host")
    ('mqtt://…@host:1883/topic', 'mqtt://…@host', 'mqtt://…')
    >>> shown("jdbc:oracle:thin:scott/tiger@//host/base"), shown("jdbc:h2:mem:x;password=a@b")
    ('jdbc:oracle:thin:…@//host/base', 'jdbc:h2:…')
    """
    found = _PREFIX.match(url)
    prefix = found[0] if found else ""
    rest = url[len(prefix) :]
    place = re.split("[?;]", rest, maxsplit=1)[0]
    if "@" not in rest:
        return prefix + place
    if "@" in rest[len(place) :]:  # a password with such a sign in it, or options with an @: who can tell
        return f"{prefix}…"
    return f"{prefix}…@{place.rpartition('@')[2]}"
