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


def without_password(url: str) -> str:
    """Return a URL without user, password and options.

    A password may hold any sign if it was not written as %40 and the like, so that only what is sure to be none of it
    is kept.

    >>> without_password("mqtt://me:s3cret@host:1883/topic?qos=1"), without_password("mqtt://me:s3/cr@et@host"), without_password("mqtt://me:a?b@host")
    ('mqtt://…@host:1883/topic', 'mqtt://…@host', 'mqtt://…')
    >>> without_password("jdbc:oracle:thin:scott/tiger@//host/base"), without_password("jdbc:h2:mem:x;password=a@b")
    ('jdbc:oracle:thin:…@//host/base', 'jdbc:h2:…')
    """
    match = _PREFIX.match(url)
    prefix = match[0] if match else ""
    rest = url[len(prefix) :]
    place = re.split("[?;]", rest, maxsplit=1)[0]
    if "@" not in rest:
        return prefix + place
    if "@" in rest[len(place) :]:  # a password with such a sign in it, or options with an @: who can tell
        return f"{prefix}…"
    return f"{prefix}…@{place.rpartition('@')[2]}"


_FEW = 3  # characters, as of 10 or yes, hide nothing


def secrets_in(url: str) -> dict[str, str]:
    """Return the secrets of a URL, whole and in parts, and what is shown instead.

    >>> secrets_in("postgresql://me:s3cret@host/base"), secrets_in("sqlite:///lake/catalog.db")
    ({'postgresql://me:s3cret@host/base': 'postgresql://…@host/base', 'me:s3cret': '…', 's3cret': '…'}, {})
    >>> [text for text in secrets_in("postgresql://me:s3%40cret@host/base") if "@" in text]
    ['postgresql://me:s3%40cret@host/base', 'me:s3@cret', 's3@cret']
    """
    safe = without_password(url)
    if safe == url:
        return {}
    secrets = {url: safe}
    if "@" in url:
        person = url.rpartition("@")[0].rpartition("//")[2]
        for text in (person, unquote(person)):  # a driver says it as it reads it
            secrets |= {text: "…", text.partition(":")[2]: "…"}
    return {text: substitute for text, substitute in secrets.items() if len(text) > _FEW}


def without_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """Return a text with each secret replaced by what may be shown, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) > _FEW:
            text = text.replace(secret, secrets[secret])
    return text


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
