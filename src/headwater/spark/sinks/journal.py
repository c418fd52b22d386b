"""What a sink has written, as a small file that is replaced as a whole: the last micro-batch, and what goes with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater.errors import InputError
from headwater.io.files import explained


class Journal:
    """The last entry that a sink made; there after a kill as it was before, or as it was just written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.batch = -1  #: the last micro-batch that is written
        self.entry: dict[str, Any] | None = None  #: all that was said of it; None before the first
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self.entry = json.loads(path.read_bytes())
                self.batch = int(self.entry["batch"])
        except OSError as error:
            raise explained(error, path, "read") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"cannot read {path}, which says what a sink has written: {error}") from error

    def write(self, batch: int, **said: Any) -> None:
        """Make an entry in the place of the last one."""
        self.batch, self.entry = batch, {"batch": batch, **said}
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            fresh.write_text(json.dumps(self.entry))
            fresh.replace(self._path)
        except OSError as error:
            raise explained(error, self._path, "write") from error
