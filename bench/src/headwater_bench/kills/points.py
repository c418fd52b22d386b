"""Points at which a run kills itself: in the midst of a checkpoint, of going on from one, and of each sink's commit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from importlib import import_module
from random import Random
from typing import Any, NamedTuple

_CHECKPOINTER = "headwater.engine.checkpoint.checkpointer:Checkpointer"
_STORE = "headwater.engine.checkpoint.store:Store"
_JOURNAL = "headwater.io.transactions.journal:Journal"
_CUT_FILE = "headwater.io.transactions.cut_file:CutFile"
_SQLITE = "headwater.io.transactions.sqlite:SqliteTable"
_SQLITE_FILE = "headwater.io.sqlite:SqliteWriter"
_TABLE = "headwater.io.transactions.table:TableParts"
_OUTBOX = "headwater.io.transactions.outbox:Outbox"

#: By what they belong to: what each point is called in the answer, and the call that it is right before or right after.
POINTS: dict[str, dict[str, tuple[str, str]]] = {
    "engine": {
        "checkpointing: sinks are made safe": (_CHECKPOINTER, "_make_safe"),
        "checkpointing: its file is written": (_STORE, "_write_safely"),
        "checkpointing: its file gets its name": ("headwater.io.log.disk:SystemDisk", "rename"),
        "checkpointing: old ones are removed": (_STORE, "_sweep"),
        "checkpointing: it is let be seen": (_CHECKPOINTER, "_let_be_seen"),
        "restoring: a task": ("headwater.engine.checkpoint.recovery:Recovery", "load"),
        "restoring: what was on its way": (_CHECKPOINTER, "restore_queues"),
    },
    "text": {
        "text file: a part ends": (_CUT_FILE, "_note"),
        "text file: a part is cut off": (_CUT_FILE, "rollback"),
        "all files: a note is written": (_JOURNAL, "_write"),
        "all files: a part is committed": (_JOURNAL, "commit"),
    },
    "SQLite": {
        "SQLite: a part is kept": (_SQLITE, "_keep"),
        "SQLite: a part is committed": (_SQLITE_FILE, "commit"),
        "SQLite: its log is made safe": (_SQLITE_FILE, "make_safe"),
        "SQLite: going on": (_SQLITE, "_go_on"),
    },
    "Parquet": {
        "Parquet table: a part is written": (_TABLE, "_prepare"),
        "Parquet table: a part appears": (_TABLE, "_publish"),
        "Parquet table: leftovers are removed": (_TABLE, "_sweep"),
    },
    "outbox": {
        "outbox: a part is kept": (_OUTBOX, "_keep"),
        "outbox: a part is due": (_OUTBOX, "_make_due"),
        "outbox: a part is delivered": (_OUTBOX, "_deliver"),
    },
    "PostgreSQL": {"PostgreSQL: a part is written": ("headwater.io.postgres.uplink:PostgresUplink", "deliver")},
    "Kafka": {"Kafka: a transaction": ("headwater.io.kafka.transactions:Transactions", "_commit")},
    "HTTP": {"HTTP: a request is posted": ("headwater.io.http.poster:Poster", "_exchange")},
    "forward": {
        "forwarding: a log is appended to": ("headwater.io.log.log:Log", "append"),
        "forwarding: records are handed to the sink": ("headwater.io.forwarding.sender:Sender", "_send"),
        "forwarding: records have arrived": ("headwater.io.forwarding.sender:Sender", "_on_arrival"),
        "MQTT: the broker has all": ("headwater.io.mqtt.writer:MqttWriter", "flush"),
    },
    "received": {
        "receiving: records are made safe": ("headwater.io.receiving.receiver:Receiver", "_safe"),
        "receiving: the flow is done with records": ("headwater.io.receiving.reader:ReceivedReader", "commit"),
    },
    "MQTT": {"MQTT: messages are acknowledged": ("headwater.io.mqtt.reader:MqttReader", "commit")},
    "webhook": {"webhook: requests are answered": ("headwater.io.http.reader:WebhookReader", "commit")},
}


class Point(NamedTuple):
    """The so many-th time that a call is made, before or after it."""

    of: str
    name: str
    time: int
    after: bool

    @classmethod
    def chosen(cls, chance: Random, of: Sequence[str]) -> Point:
        """Choose one at random, of those that belong to the engine or to these."""
        group, name = chance.choice([(group, name) for group in ("engine", *of) for name in POINTS[group]])
        return cls(group, name, chance.choice((1, 1, 2, 4, 9)), chance.random() < 0.5)

    def arm(self) -> None:
        """Have this process kill itself there."""
        owner, name = POINTS[self.of][self.name]
        home, _, kind = owner.partition(":")
        holder = getattr(import_module(home), kind)
        call: Callable[..., Any] = getattr(holder, name)
        left = self.time

        def dying(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if not left and not self.after:
                _die()
            answer = call(*arguments, **more)
            if not left and self.after:
                _die()
            return answer

        setattr(holder, name, dying)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
