"""Amid a move: the checkpoints of the old parts, which sites have sent, become those of the new ones."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from headwater.deploy.coordinator.state import Deployment
from headwater.deploy.recut import recut
from headwater.deploy.state_transfer import check_size, made_in, unpacked
from headwater.flow.flow import Flow


def checkpoints_then(
    flow: Flow, deployed: Deployment, checkpoints: Mapping[str, Mapping[str, bytes]], folder: Path
) -> dict[str, dict[str, bytes]]:
    """Return the checkpoint of each new part, by site, from those of the old ones; works in a folder that it removes."""
    assert deployed.moving is not None
    shutil.rmtree(folder, ignore_errors=True)
    then, on = deployed.then, deployed.moving.go_on
    old = {name: folder / "old" / str(number) for number, name in enumerate(checkpoints)}
    into = {name: folder / "new" / str(number) for number, name in enumerate(then.needed) if name not in on}
    try:
        for name, files in checkpoints.items():
            unpacked(files, old[name])
        recut(flow, deployed.sites, then.sites, old, into, on)
        parts = {name: made_in(path) for name, path in into.items()}
        for name, files in parts.items():
            check_size(sum(map(len, files.values())), f"the part at site '{name}'")
        return parts
    finally:
        shutil.rmtree(folder, ignore_errors=True)
