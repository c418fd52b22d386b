"""A checkpoint that was moved says so: who went on from it and from its successor would write everything twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwater.errors import RunError
from headwater.io.files import replace_whole

_FILE = "moved"


def note_move(folder: Path, to: Path, runner: str) -> None:
    """Write down where a checkpoint has gone, and which runner goes on from there."""
    note = {"to": str(to), "on": runner, "at": datetime.now(UTC).isoformat(" ", "seconds")}
    replace_whole(folder / _FILE, json.dumps(note).encode())


def read_move(folder: Path) -> dict[str, Any] | None:
    """Return where a checkpoint has gone (`to`, `on`, `at`); None for one that was not moved."""
    try:
        note: dict[str, Any] = json.loads((folder / _FILE).read_text())
        return note
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {folder / _FILE}: {error}") from None


def refuse_moved(folder: Path) -> None:
    """Raise RunError for a checkpoint that was moved."""
    note = read_move(folder)
    if note is not None:
        raise RunError(
            f"checkpoint {folder} was moved to {note['to']} at {note['at']}, for {_RUNNERS.get(note['on'], note['on'])}: "
            f"go on from there. To go back to what was before, which takes back what sinks were given since, remove "
            f"{folder / _FILE}, and never use the other one again"
        )


_RUNNERS = {"spark": "Spark", "engine": "the engine"}
