"""What a command is to write is refused before it measures or runs anything, if it cannot be written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headwater.errors import RunError, listed

UNSET = "is it a variable that is not set?"
PICTURES = (".png", ".svg")


def check_file(option: str, path: Path | None, endings: Sequence[str] = ()) -> None:
    """Refuse the name of a file that cannot be written there."""
    if path is None:
        return
    if path == Path():
        raise RunError(f"{option} names a file to write, not the current folder; {UNSET}")
    if path.is_dir():
        raise RunError(f"{option} names a file to write; {str(path)!r} is a folder")
    if endings and path.suffix.lower() not in endings:
        raise RunError(f"{option} names a file that ends in {listed(endings)}; got {str(path)!r}")
    if not path.parent.is_dir():
        raise RunError(
            f"{option} {path}: there is no folder {str(path.parent)!r}; is the path right, seen from {Path.cwd()}?"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise RunError(f"{option} {path}: it may not be written by this user")


def check_folder(option: str, folder: Path | str | None) -> None:
    """Refuse what is no name of a folder that could be made."""
    if folder is None:
        return
    if folder == "":
        raise RunError(f"{option} is empty; {UNSET}")
    path = Path(folder)
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not existing.is_dir():
        raise RunError(f"{option} names a folder; {str(existing)!r} is a file")
