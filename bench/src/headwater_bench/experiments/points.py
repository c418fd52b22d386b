"""Points at which a run kills itself: in the midst of a checkpoint, of going on from one, and of each sink's commit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from headwater.engine.checkpoint.checkpointer import Checkpointer
from headwater.engine.checkpoint.recovery import Recovery
from headwater.engine.checkpoint.store import Store
from headwater.io.log.disk import SystemDisk
from headwater.io.sqlite import SqliteWriter
from headwater.io.transactions.cut_file import CutFile
from headwater.io.transactions.journal import Journal
from headwater.io.transactions.outbox import Outbox
from headwater.io.transactions.sqlite import SqliteTable
from headwater.io.transactions.table import TableParts

#: what each point is called in the answer, and the call that it is right before or right after
POINTS: dict[str, tuple[type, str]] = {
    "checkpointing: sinks are made safe": (Checkpointer, "_make_safe"),
    "checkpointing: its file is written": (Store, "_write_safely"),
    "checkpointing: its file gets its name": (SystemDisk, "rename"),
    "checkpointing: old ones are removed": (Store, "_sweep"),
    "checkpointing: it is let be seen": (Checkpointer, "_let_be_seen"),
    "restoring: a task": (Recovery, "load"),
    "restoring: what was on its way": (Checkpointer, "restore_queues"),
    "text file: a part ends": (CutFile, "_note"),
    "text file: a part is cut off": (CutFile, "rollback"),
    "all files: a note is written": (Journal, "_write"),
    "all files: a part is committed": (Journal, "commit"),
    "SQLite: a part is kept": (SqliteTable, "_keep"),
    "SQLite: a part is committed": (SqliteWriter, "commit"),
    "SQLite: its log is made safe": (SqliteWriter, "make_safe"),
    "SQLite: going on": (SqliteTable, "_go_on"),
    "Parquet table: a part is written": (TableParts, "_prepare"),
    "Parquet table: a part appears": (TableParts, "_publish"),
    "Parquet table: leftovers are removed": (TableParts, "_sweep"),
}
#: those of sinks behind a network, which not every run has
REMOTE: dict[str, tuple[type, str]] = {
    "outbox: a part is kept": (Outbox, "_keep"),
    "outbox: a part is due": (Outbox, "_make_due"),
    "outbox: a part is delivered": (Outbox, "_deliver"),
}


class Point(NamedTuple):
    """The so many-th time that a call is made, before or after it."""

    name: str
    time: int
    after: bool

    @classmethod
    def chosen(cls, chance: Random, *, remote: bool) -> Point:
        """Choose one at random."""
        names = sorted({**POINTS, **REMOTE} if remote else POINTS)
        return cls(chance.choice(names), chance.choice((1, 1, 2, 4, 9)), chance.random() < 0.5)

    def arm(self) -> None:
        """Have this process kill itself there."""
        owner, name = {**POINTS, **REMOTE}[self.name]
        call: Callable[..., Any] = getattr(owner, name)
        left = self.time

        def dying(*given: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if not left and not self.after:
                _die()
            answer = call(*given, **more)
            if not left and self.after:
                _die()
            return answer

        setattr(owner, name, dying)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
