"""Which notes of sinks a checkpoint counts on: one for each writer of the run that made it, and of runs before with more.

What a writer had prepared when the checkpoint was made is there or due, also where no writer of that name is left: a run
with fewer lanes opens the notes of those that are gone, lets their parts be seen, and delivers what waits there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.data.schema import Schema
from headwater.engine.checkpoint.store import Checkpoint
from headwater.flow.endpoints import Transaction
from headwater.flow.flow import Flow
from headwater.flow.steps import Step, Write
from headwater.io.transactions import ledger_of, run_name, transaction_of
from headwater.io.transactions.delivery_order import Predecessors, Rest

log = logging.getLogger(__name__)


def writer_name(step: str, number: int, instances: int, lane: int = 0) -> str:
    """Return what one writer of a sink is called."""
    name = step if not lane else f"{step} in lane {lane}"
    return name if instances == 1 else f"{name} {number}"


class Ledgers:
    """The notes of all writers in a checkpoint's folder."""

    def __init__(self, folder: Path, checkpoint: Checkpoint | None, writers: Iterable[str]) -> None:
        """`writers` are the names of those that the run has now."""
        self._folder = folder
        #: the step of each writer of the checkpoint, and its last part that counts
        self._writers = {} if checkpoint is None else _writers_in(checkpoint)
        has = set(writers)
        #: the step of each writer that is no more, and its last part that counts; for the checkpoints of this run
        self.retired = {name: entry for name, entry in self._writers.items() if name not in has}
        self._open: list[Transaction] = []
        # else a key's records come by the same writer as before
        is_spread_anew = bool(self._writers) and set(self._writers) != has
        self._rests = {
            name: Rest.of(folder, name, after) for name, (_, after) in self._writers.items() if is_spread_anew
        }
        self._name: str | None = None  # of all runs with this checkpoint, once a sink is open

    def choose_name(self) -> None:
        """Have a name for all runs with this checkpoint, by which sinks know their own."""
        self._name = run_name(self._folder)

    def keep_name(self) -> None:
        """See to it that the next run finds the name: somebody may have cleaned up."""
        if self._name is not None:
            run_name(self._folder, self._name)

    def transaction(self, name: str, step: str, sink: Any, schema: Schema) -> Transaction:
        """Open a step's sink for a writer; one that is new begins, behind what others have left."""
        self.choose_name()
        after = self._writers[name][1] if name in self._writers else -1
        ahead = Predecessors(self._folder, name)
        if self._rests and name not in self.retired:
            rest = self._rests.get(name, Rest(name, -1, 0))
            ahead.let_pass(
                rest, (each for each in self._rests.values() if each is not rest and self._step(each) == step)
            )
        ledger = ledger_of(self._folder, name, after)
        ledger = replace(ledger, is_turn_of_part=ahead.is_turn_of_part, is_turn_of_entry=ahead.is_turn_of_entry)
        return transaction_of(sink, schema, ledger)

    def open_retired(self, flow: Flow) -> None:
        """Let what writers that are no more had prepared be seen; what is due of it is delivered until `close`."""
        for name, (step, _) in self.retired.items():
            kind = flow.steps[step].kind if step in flow.steps else None
            if isinstance(kind, Write):
                self._open.append(self.transaction(name, step, kind.sink, flow.steps[step].inputs[0].schema))

    def undelivered(self) -> list[str]:
        """Return the sinks of writers that are no more, of which some records are not there yet."""
        rests = [self._rests[name] for name in self.retired if not self._rests[name].is_delivered(self._folder)]
        return sorted({self._step(each) for each in rests})

    def _step(self, rest: Rest) -> str:
        return self._writers[rest.writer][0]

    def close(self) -> None:
        """Close what was opened of writers that are no more."""
        while self._open:
            try:
                self._open.pop().close()
            except Exception as error:  # what is not delivered waits for the next run
                log.warning("what a sink's writer of an earlier run left could not be closed: %s", error)


def writers_of(step: Step, lanes: int = 1) -> list[str]:
    """Return the names of all writers of a sink that so many lanes have."""
    count = step.instances if lanes == 1 else 1
    return [writer_name(step.name, number, count, lane) for lane in range(lanes) for number in range(count)]


def _writers_in(checkpoint: Checkpoint) -> dict[str, tuple[str, int]]:
    content = checkpoint.content
    writers: dict[str, tuple[str, int]] = {
        name: (step, after) for name, (step, after) in content.get("retired", {}).items()
    }
    for step, tasks in content["tasks"].items():
        if content["steps"].get(step, {}).get("kind") != "Write":
            continue
        lanes = [each.get("lane", 0) for each in tasks]
        for at, lane in enumerate(lanes):
            number = at - lanes.index(lane)
            writers[writer_name(step, number, lanes.count(lane), lane)] = step, checkpoint.number
    return writers
