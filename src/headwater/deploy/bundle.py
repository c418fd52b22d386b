"""Which source files a flow consists of: its own, and those beside it that it imports."""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.errors import RunError

_MOST_BYTES = 64 * 2**20


def sources_of(file: Path, within: Path | None = None) -> dict[str, bytes]:
    """Return the Python files of a flow that was imported, by their path from the folder of its own file, or `within` one.

    What is installed is not among them, nor is this package: that must be installed where the flow runs, too.
    """
    folder = within or file.resolve().parent
    files: dict[str, bytes] = {file.name if within is None else file.relative_to(folder).as_posix(): file.read_bytes()}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "headwater":
            continue
        path = Path(getattr(module, "__file__", None) or "").absolute()
        if ".." in path.parts:  # as of a flow that is named from a folder below its own: no site takes such a path
            path = path.parent.resolve() / path.name
        if path.suffix != ".py" or not path.is_relative_to(folder):
            continue
        near = path.relative_to(folder)
        if not {"site-packages", "dist-packages"} & set(near.parts) and not near.parts[0].startswith("."):
            files[near.as_posix()] = path.read_bytes()
    size = sum(map(len, files.values()))
    if size > _MOST_BYTES:
        raise RunError(f"the source files beside {file} have {size:,} bytes; put the flow into a folder of its own")
    return files
