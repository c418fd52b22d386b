"""Taking back what a run that was killed left behind its last checkpoint, as the next run would do first."""

from __future__ import annotations

from pathlib import Path

from headwater.engine.checkpoint.ledgers import Ledgers
from headwater.engine.checkpoint.store import Store
from headwater.errors import RunError
from headwater.flow.endpoints import is_appended_to
from headwater.flow.flow import Flow
from headwater.flow.steps import Write
from headwater.io.lock import Lock
from headwater.io.transactions import ledger_of


def roll_back(flow: Flow, checkpoint: Path) -> None:
    """Have files that a flow appends to, and its dead letters, as they were at its last checkpoint.

    What is appended to them after that stays when the flow goes on, which else would cut it off with the rest. Where a run
    is at work with the checkpoint, or it is another flow's, nothing is done.
    """
    if not checkpoint.is_dir():
        return
    try:
        lock = Lock(checkpoint, "checkpoint")
    except RunError:  # the run that has it looks after its sinks
        return
    try:
        latest = Store(checkpoint).latest()
        if latest is None or latest.content["flow"] == flow.name:
            _roll_back(flow, checkpoint, Ledgers(checkpoint, latest, ()))
    finally:
        lock.release()


def _roll_back(flow: Flow, checkpoint: Path, ledgers: Ledgers) -> None:
    for step in flow.steps.values():
        if not isinstance(step.kind, Write) or not is_appended_to(step.kind.sink):
            continue
        if (ledger_of(checkpoint, step.name).folder / "written").exists():
            ledgers.transaction(step.name, step.name, step.kind.sink, step.inputs[0].schema).close()
