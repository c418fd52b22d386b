"""What of a part's checkpoint travels when its flow is cut anew, and what stays at its site.

The checkpoint and the logs of bridges go to whoever cuts, and come back as other checkpoints. The notes of sources and sinks
stay: they are of files and connections of the site.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_BRIDGE = "bridge"  #: the folder in a sink's notes that makes it the end of a bridge


def packed(checkpoint: Path) -> dict[str, bytes]:
    """Return the files that travel, by their path within a checkpoint's folder."""
    paths = [*checkpoint.glob("*.checkpoint"), *checkpoint.glob(f"sinks/*/{_BRIDGE}/**/*")]
    return {str(path.relative_to(checkpoint)): path.read_bytes() for path in paths if path.is_file()}


def unpacked(files: Mapping[str, bytes], folder: Path, *, safe: bool = True) -> None:
    """Write such files into a folder; `safe` on disk when this returns, unless they are for a moment alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"'{name}' is not within the folder of a checkpoint")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as to:
            to.write(content)
            if safe:
                to.flush()
                os.fsync(to.fileno())


def bring_notes(old: Path, new: Path) -> None:
    """Copy the notes of sources and sinks that stay at a site from the folder of one checkpoint to that of another."""
    for kind in ("sinks", "sources"):
        for path in (old / kind).glob("*") if (old / kind).is_dir() else ():
            to = new / kind / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                shutil.copy2(path, to)
            elif not (path / _BRIDGE).is_dir():
                shutil.copytree(path, to, dirs_exist_ok=True)
