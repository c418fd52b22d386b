"""What a checkpoint belongs to: a flow of certain steps and columns, cut in a certain way. Others are turned away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater.errors import RunError
from headwater.flow.flow import Flow

_FILE = "headwater.json"
_VERSION = 1


class Checkpoint:
    """A folder in which a query keeps how far it has come; the next run with it goes on from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @property
    def query(self) -> Path:
        """The folder for Spark's own files."""
        return self.folder / "query"

    def buckets(self) -> int | None:
        """Return into how many buckets earlier runs have spread keys, which a checkpoint fixes; None for a new one."""
        known = self._read()
        return None if known is None else int(known["buckets"])

    def claim(self, flow: Flow, buckets: int) -> None:
        """Check that the checkpoint is new or this flow's own; say what differs if not."""
        mine = {"version": _VERSION, "flow": flow.name, "buckets": buckets, "steps": _steps(flow)}
        known = self._read()
        if known is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                fresh = self.folder / f"{_FILE}.new"
                fresh.write_text(json.dumps(mine, indent=1))
                fresh.replace(self.folder / _FILE)
            except OSError as error:
                raise RunError(f"cannot write checkpoint {self.folder}: {error.strerror}") from error
            return
        difference = _difference(known, mine)
        if difference:
            raise RunError(
                f"checkpoint {self.folder} does not fit: {difference}; "
                "give another folder, or remove this one to begin anew"
            )
        if known.get("ended"):
            raise RunError(
                f"checkpoint {self.folder} is of a run that has come to its end; remove it, or give another, to run again"
            )

    def end(self) -> None:
        """Write down that all sources have ended and all is written: nothing is left to go on with."""
        known = self._read()
        if known is not None:
            (self.folder / _FILE).write_text(json.dumps({**known, "ended": True}, indent=1))

    def _read(self) -> dict[str, Any] | None:
        try:
            known = json.loads((self.folder / _FILE).read_text())
        except FileNotFoundError:
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise RunError(
                    f"{self.folder} is no checkpoint of Headwater's, and not empty; give an empty or a new folder"
                ) from None
            return None
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read checkpoint {self.folder / _FILE}: {error}") from None
        if not isinstance(known, dict) or known.get("version") != _VERSION:
            raise RunError(f"checkpoint {self.folder} was written by another version of Headwater")
        return known


def _steps(flow: Flow) -> dict[str, Any]:
    """Describe what state depends on: the steps, how they are joined, and their columns."""
    return {
        step["name"]: {name: step[name] for name in ("kind", "inputs", "outputs")} for step in flow.to_json()["steps"]
    }


def _difference(known: dict[str, Any], mine: dict[str, Any]) -> str:
    if known["flow"] != mine["flow"]:
        return f"it belongs to flow {known['flow']!r}, not to {mine['flow']!r}"
    if known["buckets"] != mine["buckets"]:
        return f"it spreads keys over {known['buckets']} buckets, not over {mine['buckets']}"
    before, now = known["steps"], mine["steps"]
    for name in [*before, *now]:
        if name not in now:
            return f"flow {mine['flow']!r} had a step {name!r} then"
        if name not in before:
            return f"flow {mine['flow']!r} had no step {name!r} then"
        if before[name]["outputs"] != now[name]["outputs"]:
            return f"step {name!r} gave {_columns(before[name])} then, and gives {_columns(now[name])} now"
        if before[name] != now[name]:
            return f"step {name!r} was another kind of step then, or had other inputs"
    return ""


def _columns(step: dict[str, Any]) -> str:
    main: dict[str, str] = next(iter(step["outputs"].values()), {})
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in main.items()) + ")"
