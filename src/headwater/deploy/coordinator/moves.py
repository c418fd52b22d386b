"""Moves as they happen, since the coordinator was started: who wanted them and why, how far they are, what came of them."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from headwater.deploy.coordinator.stages import Stages
from headwater.deploy.coordinator.state import Deployment

_KEPT = 20

PREPARING, STANDING, STARTING, DONE, UNDONE = "preparing", "standing still", "starting", "done", "came to nothing"


@dataclass(slots=True)
class MoveAccount:
    """One move."""

    id: str  #: of the parts that it makes
    at_s: float
    by: str  #: a policy, or "hand"
    why: str
    steps: dict[str, tuple[str, str]]  #: from where to where
    state: str = PREPARING
    stages_s: dict[str, float] = field(default_factory=dict)  #: that are over, see `STAGES`
    gap_s: float | None = None  #: from when the old parts were told to stop until all new ones were at work
    undone: str = ""  #: why it came to nothing


class Moves:
    """The last moves, oldest first."""

    def __init__(self) -> None:
        self._known: deque[MoveAccount] = deque(maxlen=_KEPT)

    def begin(self, move: MoveAccount) -> None:
        """Take note of a move that begins."""
        self._known.append(move)

    def end(self, stages: Stages, undone: str) -> None:
        """Take note that the last one is over, and how long each stage of it took."""
        if self._known and self._known[-1].state not in (DONE, UNDONE):
            last = self._known[-1]
            last.state, last.undone = (UNDONE if undone else DONE), undone
            last.gap_s, last.stages_s = stages.gap_s, stages.to_json()

    def describe(self, deployed: Deployment | None) -> list[dict[str, Any]]:
        """Describe them; of one that is not over, how far it is."""
        moving = None if deployed is None else deployed.moving
        if self._known and self._known[-1].state not in (DONE, UNDONE):
            self._known[-1].state = STARTING if moving is None else STANDING if moving.cut else PREPARING
        return [asdict(move) for move in self._known]
