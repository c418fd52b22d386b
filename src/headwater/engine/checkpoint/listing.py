"""What checkpoints a folder holds, for people: nothing is changed, and a run may go on using the folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.engine.checkpoint.store import Store, refuse_others
from headwater.errors import RunError


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One checkpoint, or why it cannot be read."""

    number: int
    bytes: int
    restorable: bool
    why: str = ""  #: it is not
    since: int | None = None  #: the checkpoint that it builds on
    flow: str = ""
    made: str = ""
    positions: dict[str, list[Any]] = field(default_factory=dict)  #: how far each instance of each source had read
    state_bytes: dict[str, int] = field(default_factory=dict)  #: by step, with what it builds on
    waiting: dict[str, int] = field(default_factory=dict)  #: records on their way to each step


def summaries(folder: Path) -> list[CheckpointSummary]:
    """Return the checkpoints in a folder, oldest first; RunError where it holds none."""
    if not folder.is_dir():
        raise RunError(f"there is no checkpoint {folder}: no such folder; is the path right?")
    refuse_others(folder)
    store = Store(folder)
    numbers = store.numbers()
    if not numbers:
        raise RunError(f"there is no checkpoint in {folder} yet; a run makes its first after --every")
    checkpoints = [each for number in numbers if (each := _summary(store, number)) is not None]
    return checkpoints or summaries(folder)  # a run has replaced all of them meanwhile


def _summary(store: Store, number: int) -> CheckpointSummary | None:
    """Return what a checkpoint holds; None for one that a run has just removed."""
    try:
        nbytes = store.nbytes(number)
    except FileNotFoundError:
        return None
    try:
        content = store.read(number).content
    except (OSError, ValueError) as error:
        return CheckpointSummary(number, nbytes, restorable=False, why=str(error))
    return CheckpointSummary(
        number,
        nbytes,
        restorable=True,
        since=store.since(number),
        flow=content["flow"],
        made=content["made"],
        positions=content["positions"],
        state_bytes={name: sum(map(_bytes, tasks)) for name, tasks in content["tasks"].items()},
        waiting={name: count for name, tasks in content["tasks"].items() if (count := sum(map(_waiting, tasks)))},
    )


def _bytes(task: dict[str, Any]) -> int:
    return len(task["state"]) + sum(map(len, task["changes"]))


def _waiting(task: dict[str, Any]) -> int:
    return sum(batch.length for _, batch, *_ in task["queue"] if batch is not None)
