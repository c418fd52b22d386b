"""A part as it travels to its site: the flow's source files and a plain description, signed by the coordinator.

Nothing is taken from a part before its signature, and the checksum of every file, were found right; that is done each time
its process starts, so that a file which was altered at the site is refused as well.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headwater.deploy.certificates import Identity, check_signature, sign
from headwater.deploy.token import COORDINATOR
from headwater.errors import RunError
from headwater.flow.contract import Contract
from headwater.flow.profile import Profile

_PART, _SIGNATURE, _CERTIFICATE, _FILES = "part.json", "part.signature", "coordinator.crt", "files"
VERSION = 1


class Promise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one site promises: what comes to its part, how soon it leaves, and the cores for that."""

    contract: Contract
    profile: Profile  #: with the demand of the part's steps, and nothing else
    cores: float
    best_effort: bool = False  #: also where the site's machine can reserve nothing


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one site runs of a flow. `id` names the deployment, and how often it was cut anew: the same at all sites."""

    id: str
    site: str
    flow: str  #: `file.py:name` among the files, or `module:name` of what is installed at the site
    sites: dict[str, str]  #: step → site
    listens: list[str]  #: the sites that others can dial
    files: dict[str, str] = {}  #: the flow's source files, by path, with their checksums
    inputs: list[str] = []  #: files that are read in place of sources, as NAME=FILE
    output: str | None = None  #: a folder for the files of all sinks
    rate: float | None = None
    every: str = "250 ms"  #: how often its process makes a checkpoint, and so how long records wait at each bridge
    promise: Promise | None = None
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ValueError(f"it is of version {self.version}; this Headwater reads {VERSION}")
        for path in self.files:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"it has a file '{path}', which is not within its folder")


class SealedPart(msgspec.Struct, frozen=True):
    """A part with its signature and its files, as it is sent."""

    part: bytes
    signature: bytes
    certificate: bytes
    files: dict[str, bytes]


def sealed(part: Part, files: Mapping[str, bytes], identity: Identity) -> SealedPart:
    """Sign a part; `identity` is the coordinator's."""
    text = msgspec.json.encode(part)
    return SealedPart(text, sign(identity, text), identity.certificate.read_bytes(), dict(files))


def checksum(content: bytes) -> str:
    """Return what a file is known by."""
    return hashlib.sha256(content).hexdigest()


def unpack(sealed_part: SealedPart, folder: Path, site: str, authority: Path) -> Part:
    """Write a part into a new folder once it was found right; RunError says why it is refused."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        (new / _FILES).mkdir(parents=True)
        for name, content in (
            (_PART, sealed_part.part),
            (_SIGNATURE, sealed_part.signature),
            (_CERTIFICATE, sealed_part.certificate),
        ):
            _put(new / name, content)
        part = _checked(new, site, authority)
        for path, content in sealed_part.files.items():
            if path in part.files:
                (new / _FILES / path).parent.mkdir(parents=True, exist_ok=True)
                _put(new / _FILES / path, content)
        _check_files(new, part)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    except OSError as error:
        raise RunError(f"cannot write the part into {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return part


def read_part(folder: Path, site: str, authority: Path) -> Part:
    """Return a part that was unpacked, if nobody has altered it since; RunError otherwise."""
    part = _checked(folder, site, authority)
    _check_files(folder, part)
    return part


def file_of(folder: Path, path: str) -> Path:
    """Return where a file of a part is."""
    return folder / _FILES / path


def _put(path: Path, content: bytes) -> None:
    """Write a file, safe on disk when this returns."""
    with open(path, "wb") as to:
        to.write(content)
        to.flush()
        os.fsync(to.fileno())


def _checked(folder: Path, site: str, authority: Path) -> Part:
    try:
        text, signature = (folder / _PART).read_bytes(), (folder / _SIGNATURE).read_bytes()
        check_signature(authority, folder / _CERTIFICATE, COORDINATOR, text, signature)
        part = msgspec.json.decode(text, type=Part)
    except OSError as error:
        raise RunError(f"the part in {folder} cannot be read: {error.strerror}") from None
    except RunError as error:
        raise RunError(f"the part in {folder} is refused: {error}") from None
    except msgspec.DecodeError as error:
        raise RunError(f"the part in {folder} cannot be understood: {error}") from None
    if part.site != site:
        raise RunError(f"the part in {folder} is for site '{part.site}', and this is '{site}'")
    return part


def _check_files(folder: Path, part: Part) -> None:
    for path, expected in part.files.items():
        try:
            actual = checksum(file_of(folder, path).read_bytes())
        except OSError as error:
            raise RunError(f"the part in {folder} is refused: its file '{path}': {error.strerror}") from None
        if actual != expected:
            raise RunError(f"the part in {folder} is refused: its file '{path}' is not what the coordinator signed")
