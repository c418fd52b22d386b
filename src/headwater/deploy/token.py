"""The token by which a site is admitted: its name, key and certificate in one line, made where the authority's key is."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

import msgspec

from headwater.deploy.certificates import issue, issued, serial_of
from headwater.deploy.revoked import alone, note_revoked, read_revoked
from headwater.errors import RunError, suggestion

COORDINATOR = "coordinator"  #: the name in the certificate of whoever deploys; no site may have it


class _Token(msgspec.Struct, frozen=True):
    name: str
    certificate: str
    key: str
    authority: str


def make_token(folder: Path, site: str) -> str:
    """Return a token for a site; its certificate is made in the folder, and the authority where there is none yet.

    A site that was revoked gets a new certificate, and is admitted with that from then on.
    """
    if site == COORDINATOR:
        raise RunError(f"no site may be called '{COORDINATOR}': that is the name of whoever deploys")
    with alone(folder):
        admitted = read_revoked(folder).get(site)
        identity = issue(folder, site) if admitted == "" else issued(folder, site)
        texts = [path.read_text() for path in (identity.certificate, identity.key, identity.authority)]
        if admitted == "":
            note_revoked(folder, site, serial_of(identity.certificate))
    return base64.b64encode(msgspec.json.encode(_Token(site, *texts))).decode()


def revoke(folder: Path, site: str) -> None:
    """Have all tokens refused that were made for a site so far; RunError for one that none was made for."""
    sites = {path.stem for path in folder.glob("*.crt")} - {COORDINATOR, "authority"}
    if site not in sites:
        raise RunError(f"no token was made for a site '{site}' in {folder.parent}{suggestion(site, sorted(sites))}")
    with alone(folder):
        note_revoked(folder, site)


def use_token(text: str, folder: Path, name: str | None = None) -> str:
    """Take a token: write what a site needs into a folder, for its owner alone to read, and return the site's name.

    RunError for what is no token, or one for another site than `name`.
    """
    token = _read(text)
    if name is not None and name != token.name:
        raise RunError(f"the token is for site '{token.name}', and this one is called '{name}'")
    try:
        _write(token, folder)
    except OSError as error:
        raise RunError(f"cannot keep certificates in {folder}: {error.strerror}") from None
    return token.name


def name_in(text: str) -> str:
    """Return the name of the site that a token is for; RunError for what is no token."""
    return _read(text).name


def _read(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.b64decode(text.strip(), validate=True), type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise RunError(
            "this is no token of a site: one is a long line of letters, made by 'headwater site token NAME'; "
            "was it copied in part?"
        ) from None


def _write(token: _Token, folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file, content in (
        (f"{token.name}.crt", token.certificate),
        (f"{token.name}.key", token.key),
        ("authority.crt", token.authority),
    ):
        new = folder / f".{file}.new"
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as to:
            to.write(content)
        new.replace(folder / file)
