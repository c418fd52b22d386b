"""A round: a flow is run and killed, and run again, until it has ended; then what it left is looked at."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from headwater import Flow, engine
from headwater.engine.warm import load_kernels
from headwater.operators.execution_graph import ExecutionGraph
from headwater_bench.kills.case import Discrepancy
from headwater_bench.kills.children import answer_of, beside, is_over, run_in_child
from headwater_bench.kills.points import Point

_EVERY = "10 ms"  #: a checkpoint
_LIVES_S = (0.05, 0.2, 0.6)  #: at most; on a busy machine a run may not even have begun by then
_LONGER = 1.1  #: so many times as long as the one before lives the next of a round
_AT_A_POINT_S = 1.0  #: for which a run may not come to its point
_LOOK_S = 0.02
_MOST = 40  #: kills of a round; then it is left in peace, and comes to its end
_PEACE_S = 120.0
_LAST_S = 0.3  #: for which a flow that does not end goes on once all is there: what would come again does so


class Killed(Protocol):
    """What a round needs to know of a case."""

    name: str
    ends: bool
    lanes: int
    pace: float
    points: tuple[str, ...]

    def rehearse(self, folder: Path) -> None:
        """Find out what must be there in the end, before any round."""

    def prepare(self, folder: Path) -> None:
        """Make ready what the first run needs."""

    def feed(self, folder: Path) -> Callable[[], None] | None:
        """Return what is done beside the runs."""

    def flow(self, folder: Path) -> Flow:
        """Describe the flow."""

    def is_complete(self, folder: Path) -> bool:
        """Say whether all is there, of a flow that does not end."""

    def judge(self, folder: Path) -> Discrepancy:
        """Look at what is there in the end."""


@dataclass
class Round:
    """What came of it."""

    kills: int = 0
    while_checkpointing: int = 0
    points: Counter[str] = field(default_factory=Counter)  #: at which runs killed themselves
    discrepancy: Discrepancy = field(default_factory=Discrepancy)


def play(case: Killed, folder: Path, chance: Random) -> Round:
    """Play a round in a folder of its own."""
    folder.mkdir()
    answer_of(lambda: case.prepare(folder))
    load_kernels(ExecutionGraph.of(case.flow(folder)))  # here, so that each run need not
    played = Round()
    with beside(case.feed(folder)) as is_fed:
        while not _is_ended(case, folder, chance, played, is_fed):
            played.kills += 1
    if not case.ends:
        answer_of(lambda: _go_on_for(case.flow(folder), folder))
    played.discrepancy = case.judge(folder)
    return played


def _is_ended(case: Killed, folder: Path, chance: Random, played: Round, is_fed: Callable[[], bool]) -> bool:
    """Run once, and kill; return whether the run came to its end before that."""
    peace = played.kills >= _MOST
    # of lanes, the first is killed: the others then end, and nobody is left to be in the way of the next run
    at_a_point = not peace and case.lanes == 1 and chance.random() < 0.5
    point = Point.chosen(chance, case.points) if at_a_point else None
    child = run_in_child(lambda: _run(case, folder, point), folder / "error")
    longer = case.pace * case.lanes * _LONGER**played.kills
    lives_s = _AT_A_POINT_S * longer if point is not None else chance.choice(_LIVES_S) * chance.random() * longer
    if peace:
        lives_s = _PEACE_S
    reached = is_over(child, lives_s)
    played.while_checkpointing += any(folder.glob("checkpoint/*.new"))
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        if os.WEXITSTATUS(status):
            raise AssertionError(
                f"{case.name}: a run went wrong after {played.kills} kills: {(folder / 'error').read_text()}"
            )
        return is_fed()  # of a flow that does not end: if the last is on its way, it is there
    assert not peace, f"{case.name}: after {_MOST} kills it does not come to its end within {_PEACE_S:g} s"
    if reached and point is not None:
        played.points[point.name] += 1
    return False


def _run(case: Killed, folder: Path, point: Point | None) -> None:
    """Run the flow, or go on with it, up to a point at which it kills itself, or to its end."""
    parent = os.getppid()
    if point is not None:
        point.arm()
    lanes = case.lanes if case.lanes > 1 else None
    run = engine.start(case.flow(folder), lanes=lanes, checkpoint=folder / "checkpoint", every=_EVERY)
    while run.wait(_LOOK_S) is None:
        if os.getppid() != parent:
            os._exit(1)
        if not case.ends and case.is_complete(folder):
            run.stop()


def _go_on_for(flow: Flow, folder: Path) -> None:
    engine.run(flow, checkpoint=folder / "checkpoint", seconds=_LAST_S)
