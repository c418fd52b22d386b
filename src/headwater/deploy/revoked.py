"""Sites whose certificates are refused, though the authority has issued them: a gateway was stolen, or a key has leaked.

All certificates that a site had are revoked at once, known or not: of a site that was ever revoked only the one is taken
that its newest token has, by its serial number.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from headwater.errors import RunError
from headwater.io.files import replace_whole

_REVOKED = "revoked.json"

#: by site that was ever revoked: the serial number of the one certificate that is taken; nothing where none is
Revoked = Mapping[str, str]


def refuses(revoked: Revoked, name: str, serial: str) -> bool:
    """Say whether a certificate for a name is refused.

    >>> revoked = {"barn": "2A", "shed": ""}
    >>> [refuses(revoked, *shown) for shown in (("barn", "2A"), ("barn", "1"), ("shed", ""), ("attic", "3"))]
    [False, True, True, False]
    """
    return name in revoked and (not serial or serial != revoked[name])


def shown_serial(certificate: Mapping[str, Any] | None) -> str:
    """Return the serial number of the certificate that the other end of a connection has shown."""
    return str((certificate or {}).get("serialNumber", ""))


def revoked_file(folder: Path) -> Path:
    """Return the file in a folder of certificates that says which are refused; it is replaced as a whole."""
    return folder / _REVOKED


def changed_ns(path: Path) -> int:
    """Return a number that changes with a file; files are replaced as a whole, so that each has one of its own."""
    try:
        status = path.stat()
        return status.st_ino ^ status.st_mtime_ns
    except OSError:
        return 0


def read_revoked(folder: Path) -> dict[str, str]:
    """Return what is revoked of the certificates in a folder."""
    try:
        return msgspec.json.decode(revoked_file(folder).read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise RunError(f"which sites are revoked, in {revoked_file(folder)}, cannot be read: {error}") from None


def note_revoked(folder: Path, site: str, admitted: str = "") -> None:
    """Have all certificates of a site refused but the one with this serial number; it is safe on disk once this returns.

    For who is `alone`.
    """
    replace_whole(revoked_file(folder), msgspec.json.encode(read_revoked(folder) | {site: admitted}))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep others from changing what is revoked: whoever makes a certificate anew notes it before another is made."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / f".{_REVOKED}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise RunError(f"cannot keep certificates in {folder}: {error.strerror}") from None
