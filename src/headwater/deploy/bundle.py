"""Which source files a flow consists of: its own, and those beside it that it imports."""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.errors import RunError

_MOST_BYTES = 64 * 2**20


def sources_of(file: Path) -> dict[str, bytes]:
    """Return the Python files of a flow that was imported, by their path from the folder of its own file.

    What is installed is not among them: that must be installed at the sites too.
    """
    folder = file.resolve().parent
    found: dict[str, bytes] = {file.name: file.read_bytes()}
    for module in list(sys.modules.values()):
        path = Path(getattr(module, "__file__", None) or "").absolute()
        if path.suffix != ".py" or not path.is_relative_to(folder):
            continue
        near = path.relative_to(folder)
        if not {"site-packages", "dist-packages"} & set(near.parts) and not near.parts[0].startswith("."):
            found[near.as_posix()] = path.read_bytes()
    size = sum(map(len, found.values()))
    if size > _MOST_BYTES:
        raise RunError(f"the source files beside {file} have {size:,} bytes; put the flow into a folder of its own")
    return found
