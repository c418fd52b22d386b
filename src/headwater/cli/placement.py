"""Placements in files: the JSON of `headwater plan`, read back by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from headwater.errors import PlacementError
from headwater.net.arrays import Ints
from headwater.place import Problem


def read_placement(path: Path, problem: Problem) -> Ints:
    """The device of every step, as a plan's JSON says; whether that is valid here is for the caller to find out."""
    try:
        document: Any = json.loads(path.read_text())
        names: Any = (document.get("after") or document).get("placement")
    except FileNotFoundError:
        raise PlacementError(
            f"there is no placement file '{path}'; is the path right, seen from {Path.cwd()}?"
        ) from None
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, AttributeError) as slip:
        raise PlacementError(f"placement file '{path}' cannot be read: {slip}") from slip
    missing = set(problem.steps) - set(names or ())
    if missing:
        raise PlacementError(f"placement file '{path}' does not say where step '{min(missing)}' runs")
    return np.array([problem.net.device(names[step]) for step in problem.steps])
