"""URLs: which ones are files of this machine, and what may be shown of all.

No message, drawing or log has a password in it, however a URL was mistyped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from headwater.errors import FlowError

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


_FEW = 3  # characters, as of 10 or yes, hide nothing


def secrets_in(url: str) -> dict[str, str]:
    """Return what must not be told of a URL, whole and in parts, and what is told instead.

    >>> secrets_in("postgresql://me:s3cret@host/base"), secrets_in("sqlite:///lake/catalog.db")
    ({'postgresql://me:s3cret@host/base': 'postgresql://…@host/base', 'me:s3cret': '…', 's3cret': '…'}, {})
    >>> [text for text in secrets_in("postgresql://me:s3%40cret@host/base") if "@" in text]
    ['postgresql://me:s3%40cret@host/base', 'me:s3@cret', 's3@cret']
    """
    safe = shown(url)
    if safe == url:
        return {}
    found = {url: safe}
    if "@" in url:
        person = url.rpartition("@")[0].rpartition("//")[2]
        for text in (person, unquote(person)):  # a driver says it as it reads it
            found |= {text: "…", text.partition(":")[2]: "…"}
    return {text: told for text, told in found.items() if len(text) > _FEW}


def without_secrets(said: str, secrets: Mapping[str, str]) -> str:
    """Return what somebody said with each secret replaced by what may be told, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) > _FEW:
            said = said.replace(secret, secrets[secret])
    return said


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # not the one letter of a drive


def path_in(address: str | Path) -> Path | None:
    """Return the path that an address is, as such or as a URL of this machine's files; None for any other URL.

    >>> path_in("out/levels"), path_in("file:///tmp/levels"), path_in("s3a://lake/levels")
    (PosixPath('out/levels'), PosixPath('/tmp/levels'), None)
    """
    text = str(address)
    if not _SCHEME.match(text):
        return Path(address)
    if isinstance(address, Path):
        raise FlowError(f"{text!r} is a URL; give it as text, since a Path leaves out one of its slashes")
    return Path(url2pathname(urlsplit(text).path)) if text.startswith("file:") else None
